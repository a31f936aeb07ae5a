/** One checkpoint: its facts, its report, its parts, and what can be done with it. */

import * as actions from "../actions";
import { get, ofCheckpoint } from "../api";
import { useAsked } from "../asking";
import { bringBack } from "../binding";
import { doom, doomed, keep } from "../deleting";
import { picture } from "../live";
import { ContentOf } from "../parts/content";
import { Age, CheckpointLink, KindMark, Link, Marks, SubjectLink } from "../parts/links";
import { MembersOf } from "../parts/members";
import { ReportTable } from "../parts/report";
import { Trouble, Waiting } from "../parts/states";
import type { Checkpoint, Manifest } from "../shapes";
import { count, exact, honest, percent, size } from "../words";

export function CheckpointView({ id }: { id: string }) {
  // Asked again after every change of the store: pins, tags and the head may be others.
  const version = String(picture.value.sequence);
  const asked = useAsked(id, () => get<Manifest>(ofCheckpoint(id)), version);
  if (asked.error) {
    return (
      <>
        <Trouble error={asked.error} again={asked.again} />
        <p>
          <Link to={{ view: "subjects" }}>All subjects</Link>
        </p>
      </>
    );
  }
  if (!asked.value) return <Waiting what="Reading the checkpoint" />;
  return <Page manifest={asked.value} />;
}

function Page({ manifest }: { manifest: Manifest }) {
  const { checkpoint } = manifest;
  const head = picture.value.subjects.get(checkpoint.subject)?.head?.id === checkpoint.id;
  return (
    <>
      <nav class="crumbs" aria-label="Where you are">
        <Link to={{ view: "subjects" }}>Subjects</Link> /{" "}
        <SubjectLink subject={checkpoint.subject} />
      </nav>
      <div class="title">
        <h1>
          <KindMark kind={checkpoint.kind} /> <code>{checkpoint.short}</code>{" "}
          {honest(checkpoint.reason)} <Marks checkpoint={checkpoint} head={head} />
        </h1>
        <Buttons checkpoint={checkpoint} head={head} />
      </div>
      <Facts checkpoint={checkpoint} relatives={manifest.relatives} />
      {manifest.report && <ReportTable items={manifest.report} />}
      {checkpoint.kind === "bundle" ? (
        <MembersOf id={checkpoint.id} />
      ) : (
        <ContentOf id={checkpoint.id} />
      )}
      <Parts manifest={manifest} />
    </>
  );
}

function Buttons({ checkpoint, head }: { checkpoint: Checkpoint; head: boolean }) {
  const going = doomed.value.has(checkpoint.id);
  const parent = checkpoint.parents[0];
  return (
    <div class="buttons">
      {parent && (
        <Link to={{ view: "diff", before: parent, after: checkpoint.id }} class="button">
          What changed
        </Link>
      )}
      {checkpoint.kind === "bundle" ? (
        <button type="button" class="primary" onClick={() => bringBack(checkpoint)}>
          Bring all back
        </button>
      ) : (
        <>
          {!head && (
            <button type="button" onClick={() => actions.rollback(checkpoint.subject, checkpoint)}>
              Roll back to this
            </button>
          )}
          <button type="button" onClick={() => actions.fork(checkpoint)}>
            Fork
          </button>
        </>
      )}
      <button
        type="button"
        aria-pressed={checkpoint.pinned}
        onClick={() => void actions.pin(checkpoint)}
      >
        {checkpoint.pinned ? "Unpin" : "Pin"}
      </button>
      <button type="button" onClick={() => actions.tag(checkpoint)}>
        Tag
      </button>
      <a class="button" href={ofCheckpoint(checkpoint.id, "/export")} download>
        Export
      </a>
      {going ? (
        <button type="button" onClick={() => keep(checkpoint.id)}>
          Keep it
        </button>
      ) : (
        <button type="button" class="danger" onClick={() => doom(checkpoint)}>
          Delete
        </button>
      )}
    </div>
  );
}

function Facts(props: { checkpoint: Checkpoint; relatives: Record<string, string> }) {
  const { checkpoint, relatives } = props;
  const shared = Math.max(0, checkpoint.size_bytes - checkpoint.stored_bytes);
  const other = (id: string) =>
    relatives[id] ? (
      <CheckpointLink checkpoint={{ id, short: relatives[id] }} />
    ) : (
      "one that is not in this store"
    );
  return (
    <section class="card" aria-label="Facts">
      <div class="sizes">
        <div
          class="bar"
          role="img"
          aria-label={`${percent(checkpoint.stored_bytes, checkpoint.size_bytes)} of it was new`}
        >
          <span
            style={{
              width: `${Math.min(100, (100 * checkpoint.stored_bytes) / Math.max(1, checkpoint.size_bytes))}%`,
            }}
          />
        </div>
        <p>
          <b>{size(checkpoint.size_bytes)}</b> in {count(checkpoint.part_count, "part")}:{" "}
          <b>{size(checkpoint.stored_bytes)}</b> new, <b>{size(shared)}</b> shared or compressed
          away
        </p>
      </div>
      <dl class="facts">
        <dt>When</dt>
        <dd>
          {exact(checkpoint.time)} (<Age time={checkpoint.time} />)
        </dd>
        {checkpoint.stage && (
          <>
            <dt>Stage</dt>
            <dd>{honest(checkpoint.stage)}</dd>
          </>
        )}
        {checkpoint.parents.length > 0 && (
          <>
            <dt>Parents</dt>
            <dd>
              {checkpoint.parents.map((each) => (
                <span key={each}>{other(each)} </span>
              ))}
            </dd>
          </>
        )}
        {checkpoint.rollback_of && (
          <>
            <dt>Rolled back to</dt>
            <dd>{other(checkpoint.rollback_of)}</dd>
          </>
        )}
        <dt>Id</dt>
        <dd>
          <code>{checkpoint.id}</code>
        </dd>
        <dt>Digest</dt>
        <dd>
          <code>{checkpoint.digest}</code>
        </dd>
        {checkpoint.signer && (
          <>
            <dt>Signed by</dt>
            <dd>
              <code>{checkpoint.signer}</code>
              {checkpoint.foreign && " a key that is not known here"}
            </dd>
          </>
        )}
      </dl>
    </section>
  );
}

const MOST_PARTS = 200;

function Parts({ manifest }: { manifest: Manifest }) {
  const { parts } = manifest;
  if (!parts.length) return null;
  return (
    <details open={parts.length <= 12}>
      <summary>
        <h2>{count(parts.length, "part")}</h2>
      </summary>
      <div class="card wide">
        <table class="cards">
          <thead>
            <tr>
              <th>Name</th>
              <th class="number">Size</th>
              <th>Split</th>
            </tr>
          </thead>
          <tbody>
            {parts.slice(0, MOST_PARTS).map((each) => (
              <tr key={each.name}>
                <td data-label="Name">
                  <code>{honest(each.name)}</code>
                </td>
                <td data-label="Size" class="number">
                  {size(each.size)}
                </td>
                <td data-label="Split" class="soft">
                  {each.split}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {parts.length > MOST_PARTS && (
          <p class="soft">
            The first {MOST_PARTS} of {parts.length} are shown.
          </p>
        )}
      </div>
    </details>
  );
}
