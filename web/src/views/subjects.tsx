/** The first view: every subject, found by words and by kind. */

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { runner } from "../actions";
import { bind } from "../binding";
import { known, picture, trouble } from "../live";
import { Beginning } from "../parts/beginning";
import { Age, KindMark, Link } from "../parts/links";
import { Empty, Trouble, Waiting } from "../parts/states";
import { type Filter, matching } from "../picture";
import type { Subject } from "../shapes";
import { count, honest, size } from "../words";

// What was looked for is still there when one comes back.
const filter = signal<Filter>({ text: "", kind: "" });
const KINDS = ["state", "session", "sandbox", "container", "bundle"];
const STEP = 200;

export function SubjectsView() {
  const [most, setMost] = useState(STEP);
  if (!known.value) {
    return trouble.value ? <Trouble error={trouble.value} /> : <Waiting what="Reading the store" />;
  }
  const all = [...picture.value.subjects.values()];
  if (!all.length) return <Nothing />;
  const found = matching(all, filter.value);
  const counts = new Map<string, number>();
  for (const each of all) counts.set(each.kind, (counts.get(each.kind) ?? 0) + 1);
  return (
    <>
      <div class="title">
        <h1>{count(all.length, "subject")}</h1>
        <div class="buttons">
          <button
            type="button"
            title="Freeze several subjects together, to bring them back together"
            onClick={() => bind("", bindable(found))}
          >
            Bind…
          </button>
          <Link to={{ view: "run" }} class="button primary">
            Run something
          </Link>
        </div>
      </div>
      <search class="filters">
        <input
          type="search"
          placeholder="Search names, reasons, stages"
          aria-label="Search subjects"
          data-search
          value={filter.value.text}
          onInput={(event) => {
            filter.value = { ...filter.value, text: event.currentTarget.value };
          }}
        />
        <fieldset class="chips">
          <legend class="unseen">Kind</legend>
          {["", ...KINDS.filter((kind) => kind !== "bundle" || counts.has(kind))].map((kind) => (
            <button
              type="button"
              key={kind}
              class="chip"
              aria-pressed={filter.value.kind === kind}
              onClick={() => {
                filter.value = { ...filter.value, kind };
              }}
            >
              {kind || "all"} <small>{kind ? (counts.get(kind) ?? 0) : all.length}</small>
            </button>
          ))}
        </fieldset>
      </search>
      {found.length === 0 ? (
        <Empty title="Nothing matches">
          <p>
            No subject has these words
            {filter.value.kind && ` among those of the kind ${filter.value.kind}`}.
          </p>
          <button
            type="button"
            onClick={() => {
              filter.value = { text: "", kind: "" };
            }}
          >
            Show all
          </button>
        </Empty>
      ) : (
        <ul class="subjects card">
          {found.slice(0, most).map((each) => (
            <SubjectRow key={each.subject} subject={each} />
          ))}
        </ul>
      )}
      {found.length > most && (
        <button type="button" onClick={() => setMost(most + STEP)}>
          Show {Math.min(STEP, found.length - most)} more of {found.length}
        </button>
      )}
    </>
  );
}

const MOST_BOUND = 10;

/** What one may mean: what was looked for, when that is little enough to be meant. */
function bindable(found: readonly Subject[]): string[] {
  const able = found.filter((each) => each.kind !== "bundle").map((each) => each.subject);
  return able.length <= MOST_BOUND ? able : [];
}

function SubjectRow({ subject }: { subject: Subject }) {
  return (
    <li>
      <KindMark kind={subject.kind} />
      <span class="what">
        <Link to={{ view: "subject", subject: subject.subject }} class="name">
          {honest(subject.name)}
        </Link>
        {runner(subject.subject) && <span class="mark live">running</span>}
        <span class="soft reason">
          {subject.head ? honest(subject.head.reason) : "no head"}
          {subject.head?.stage && <> · {honest(subject.head.stage)}</>}
        </span>
      </span>
      <span class="soft">{count(subject.count, "checkpoint")}</span>
      <span class="soft">{size(subject.size_bytes)}</span>
      <span class="soft when">
        <Age time={subject.time} />
      </span>
    </li>
  );
}

function Nothing() {
  return (
    <Empty title="Nothing is frozen yet">
      <p>This store is empty.</p>
      <Beginning />
    </Empty>
  );
}
