/** What runs on this server, and how to begin something. */

import type { JSX } from "preact";
import { useState } from "preact/hooks";
import * as actions from "../actions";
import { get, type Refusal, refusalOf } from "../api";
import { useAsked } from "../asking";
import * as consoles from "../consoles/open";
import { picture, running } from "../live";
import { KindMark, Link } from "../parts/links";
import { Trouble } from "../parts/states";
import { go } from "../route";
import type { Sessions } from "../shapes";
import { honest } from "../words";

interface Status {
  engine: string | null;
}

export function RunView() {
  const sessions = useAsked("sessions", () => get<Sessions>("/v1/sessions"));
  const status = useAsked("status", () => get<Status>("/status"));
  const known = [...picture.value.subjects.values()]
    .filter((each) => each.kind === "session")
    .map((each) => each.name)
    .slice(0, 200);
  return (
    <>
      <h1>Run</h1>
      <p class="soft">
        What runs here can be frozen at any moment, and brought back from there later.
      </p>
      <div class="sides">
        <section class="card" aria-label="A session">
          <h2>A Python session</h2>
          <p class="soft">
            Variables, functions and imports live on between cells, and come back after a restart.
            It runs as the user that started the server.
          </p>
          {sessions.value?.why_not ? (
            <p>This server runs no sessions: {sessions.value.why_not}</p>
          ) : (
            <Begin
              label="Name"
              hint="a new name, or one that has checkpoints"
              names={known}
              needed
              action="Start or resume"
              run={async (name) => go({ view: "console", subject: `session/${name}` })}
            />
          )}
        </section>
        <section class="card" aria-label="A sandbox">
          <h2>A sandbox</h2>
          <p class="soft">
            Programs with files and processes of their own, behind walls
            {status.value?.engine && ` (engine: ${status.value.engine})`}.
          </p>
          {status.value && !status.value.engine ? (
            <p>
              No engine for sandboxes works on this machine. <code>holdfast doctor</code> says what
              is missing.
            </p>
          ) : (
            <Begin
              label="Label"
              hint="for you to tell them apart; may be empty"
              names={[]}
              action="Create"
              run={async (name) => {
                go({ view: "console", subject: await consoles.create(name) });
              }}
            />
          )}
        </section>
      </div>
      <Now />
    </>
  );
}

function Begin(props: {
  label: string;
  hint: string;
  names: string[];
  needed?: boolean;
  action: string;
  run: (name: string) => Promise<void>;
}) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Refusal | null>(null);
  const list = `names-of-${props.label}`;
  const submit = async (event: JSX.TargetedSubmitEvent<HTMLFormElement>) => {
    event.preventDefault();
    const name = String(new FormData(event.currentTarget).get("name")).trim();
    setBusy(true);
    setError(null);
    try {
      await props.run(name);
    } catch (refused) {
      setError(refusalOf(refused));
    }
    setBusy(false);
  };
  return (
    <form onSubmit={submit}>
      <label class="field">
        <span>{props.label}</span>
        <input
          name="name"
          list={list}
          required={props.needed ?? false}
          maxLength={255}
          autocomplete="off"
          spellcheck={false}
        />
        <small class="soft">{props.hint}</small>
      </label>
      <datalist id={list}>
        {props.names.map((name) => (
          <option key={name} value={name} />
        ))}
      </datalist>
      {error && <Trouble error={error} />}
      <button type="submit" class="primary" disabled={busy}>
        {busy ? "Starting…" : props.action}
      </button>
    </form>
  );
}

function Now() {
  const all = [
    ...running.value.sessions.map((each) => ({
      subject: each.subject,
      label: each.name,
      kind: "session",
      state: each.busy ? "busy" : "ready",
    })),
    ...running.value.sandboxes.map((each) => ({
      subject: `sandbox/${each.id}`,
      label: each.name ?? `${each.id.slice(0, 12)}…`,
      kind: "sandbox",
      state: each.executing ? "busy" : "ready",
    })),
  ];
  return (
    <section aria-label="Running now">
      <h2>Running now</h2>
      {all.length === 0 ? (
        <p class="soft">Nothing. Start a session or a sandbox above.</p>
      ) : (
        <ul class="subjects card">
          {all.map((each) => (
            <li key={each.subject}>
              <KindMark kind={each.kind} />
              <span class="what">
                <Link to={{ view: "console", subject: each.subject }} class="name">
                  {honest(each.label)}
                </Link>
                <span class="mark live">{each.state}</span>
              </span>
              <span>
                {picture.value.subjects.has(each.subject) && (
                  <Link to={{ view: "subject", subject: each.subject }}>Checkpoints</Link>
                )}
              </span>
              <span />
              <button type="button" onClick={() => actions.stop(each.subject)}>
                Stop
              </button>
            </li>
          ))}
        </ul>
      )}
    </section>
  );
}
