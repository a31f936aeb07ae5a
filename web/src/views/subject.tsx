/** One subject: what it is, what can be done with it, and its lineage. */

import { useEffect, useState } from "preact/hooks";
import * as actions from "../actions";
import { bindAgain, bringBack } from "../binding";
import { picture, refused, watch } from "../live";
import { Age, KindMark, Link } from "../parts/links";
import { Empty, Trouble, Waiting } from "../parts/states";
import { attempt } from "../parts/toasts";
import { Tree } from "../parts/tree";
import { go } from "../route";
import type { Lineage } from "../shapes";
import { count, honest } from "../words";

export function SubjectView({ subject }: { subject: string }) {
  const [marked, setMarked] = useState<readonly string[]>([]);
  useEffect(() => watch(subject), [subject]);
  const lineage = picture.value.lineages.get(subject);
  const why = refused.value.get(subject);
  if (!lineage) {
    if (!why) return <Waiting what="Reading the lineage" />;
    return (
      <>
        <Trouble error={why} />
        <p>
          <Link to={{ view: "subjects" }}>All subjects</Link>
        </p>
      </>
    );
  }
  const mark = (id: string) => {
    // Two at most: a third one takes the place of the older mark.
    setMarked(
      marked.includes(id) ? marked.filter((each) => each !== id) : [...marked.slice(-1), id],
    );
  };
  return (
    <>
      <Head lineage={lineage} marked={marked} />
      {lineage.checkpoints.length ? (
        <Tree lineage={lineage} marked={new Set(marked)} onMark={mark} />
      ) : (
        <Empty title="No checkpoints are left">
          <p>The last checkpoint of this subject was deleted.</p>
          <Link to={{ view: "subjects" }} class="button">
            All subjects
          </Link>
        </Empty>
      )}
      <Moves lineage={lineage} />
    </>
  );
}

function Head({ lineage, marked }: { lineage: Lineage; marked: readonly string[] }) {
  const [kind = "", ...rest] = lineage.subject.split("/");
  const lives = actions.runner(lineage.subject);
  const head = lineage.checkpoints.find((each) => each.id === lineage.head);
  const order = new Map(lineage.checkpoints.map((each) => [each.id, each.sequence]));
  const chosen = marked.filter((id) => order.has(id));
  const compare = () => {
    const [a, b] = [...chosen].sort((x, y) => (order.get(x) ?? 0) - (order.get(y) ?? 0));
    const before = b === undefined ? (head?.parents[0] ?? a) : a;
    const after = b === undefined ? a : b;
    if (before && after) go({ view: "diff", before, after });
  };
  return (
    <>
      <nav class="crumbs" aria-label="Where you are">
        <Link to={{ view: "subjects" }}>Subjects</Link> / {kind}
      </nav>
      <div class="title">
        <h1>
          <KindMark kind={kind} /> {honest(rest.join("/"))}
          {lives && <span class="mark live">running</span>}
        </h1>
        <div class="buttons">
          {(kind === "session" || kind === "sandbox") && (
            <Link to={{ view: "console", subject: lineage.subject }} class="button">
              Console
            </Link>
          )}
          {lives && (
            <button
              type="button"
              class="primary"
              onClick={() => actions.checkpoint(lineage.subject)}
            >
              Checkpoint
            </button>
          )}
          {kind === "bundle" && head && (
            <>
              <button
                type="button"
                class="primary"
                onClick={() => void attempt(() => bindAgain(head))}
              >
                Checkpoint
              </button>
              <button type="button" onClick={() => bringBack(head)}>
                Bring all back
              </button>
            </>
          )}
          {kind !== "bundle" && (
            <button
              type="button"
              disabled={!head || head.parents.length === 0}
              onClick={() => actions.rollback(lineage.subject, null)}
            >
              Roll back
            </button>
          )}
          {head && kind !== "bundle" && (
            <button
              type="button"
              onClick={() =>
                lives?.kind === "sandbox" ? actions.copy(lineage.subject) : actions.fork(head)
              }
            >
              Fork
            </button>
          )}
          <button type="button" disabled={chosen.length !== 2} data-compare onClick={compare}>
            Compare {chosen.length ? `(${chosen.length} of 2)` : ""}
          </button>
        </div>
      </div>
      <p class="soft">
        {count(lineage.checkpoints.length, "checkpoint")}
        {lineage.checkpoints[0] && (
          <>
            , the newest <Age time={lineage.checkpoints[0].time} />
          </>
        )}
        . Mark two of them to compare.
        {!lives && kind === "state" && " The program that owns this state takes its checkpoints."}
        {!lives && kind === "session" && " A console brings it back to life."}
        {!lives && kind === "sandbox" && " Its console brings it back, for whoever has its token."}
      </p>
      {kind === "container" && (
        <p class="soft">
          Its engine runs it, not this server. On its node, as root,{" "}
          <code>holdfast checkpoint {honest(lineage.subject)}</code> freezes it, and it appears here
          at once; created again under the same name, it goes on from the head.
        </p>
      )}
    </>
  );
}

const MOST_MOVES = 100;

function Moves({ lineage }: { lineage: Lineage }) {
  const moves = lineage.moves.slice(-MOST_MOVES).reverse();
  const shorts = new Map(lineage.checkpoints.map((each) => [each.id, each.short]));
  const name = (id: string | null) =>
    id === null ? "nothing" : (shorts.get(id) ?? "one that is not in this store");
  return (
    <details class="moves">
      <summary>How the head moved ({lineage.moves.length})</summary>
      <ol>
        {moves.map((each) => (
          <li key={each.sequence}>
            <b>{each.verb}</b> from <code>{name(each.before)}</code> to{" "}
            <code>{name(each.after)}</code>, <Age time={each.time} />
          </li>
        ))}
      </ol>
    </details>
  );
}
