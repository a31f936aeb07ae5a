/** What to do in an empty store: an example to play with, something to run, a first checkpoint. */

import { useState } from "preact/hooks";
import { post } from "../api";
import { link } from "../live";
import { go } from "../route";
import type { Example } from "../shapes";
import { Link } from "./links";
import { attempt, tell } from "./toasts";

const FIRST_STEPS = `from holdfast import sync

with sync.Session(name="first") as session:
    session.execute("x = 41 + 1")
    session.checkpoint(reason="trying it out")`;

export function Beginning() {
  const [busy, setBusy] = useState(false);
  const make = async () => {
    setBusy(true);
    await attempt(async () => {
      const made = await post<Example>("/v1/example");
      tell(`The example is there: ${made.subjects.join(", ")}`);
      const first = made.subjects[0];
      if (first) go({ view: "subject", subject: first });
    });
    setBusy(false);
  };
  return (
    <>
      <p>
        An example shows what there is to see: subjects with checkpoints to compare, roll back and
        fork.
      </p>
      <div class="buttons">
        <button
          type="button"
          class="primary"
          onClick={make}
          disabled={busy || link.value === "lost"}
        >
          {busy ? "Making an example…" : "Make an example"}
        </button>
        <Link to={{ view: "run" }} class="button">
          Start a session or a sandbox
        </Link>
      </div>
      <p>Or take a first checkpoint from Python; this page shows it at once:</p>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may have to be scrolled */}
      <pre tabIndex={0}>{FIRST_STEPS}</pre>
    </>
  );
}
