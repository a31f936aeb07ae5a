/** The store's health: space, what sharing saves, the last verification, what prune would free. */

import { useState } from "preact/hooks";
import { get, post } from "../api";
import { useAsked, useCalm } from "../asking";
import { picture, proven } from "../live";
import { Beginning } from "../parts/beginning";
import { ask } from "../parts/dialogs";
import { Age, CheckpointLink, KindMark, SubjectLink } from "../parts/links";
import { Empty, Trouble, Waiting } from "../parts/states";
import { attempt, tell } from "../parts/toasts";
import type { Drills, Health, Pruning, Verification } from "../shapes";
import { count, day, honest, percent, size } from "../words";

const CALM = 2000; // milliseconds

export function StoreView() {
  // Not after each entry of a busy log: it looks at all of them.
  const sequence = useCalm(picture.value.sequence, CALM);
  const asked = useAsked(
    "health",
    () => get<Health>("/v1/health"),
    `${sequence} ${proven.value.verified}`,
  );
  const health = asked.value;
  if (asked.error) return <Trouble error={asked.error} again={asked.again} />;
  if (!health) return <Waiting what="Measuring the store" />;
  const { usage } = health;
  if (usage.checkpoints === 0) {
    return (
      <Empty title="The store is empty">
        <p>
          <code>{honest(usage.store)}</code> holds no checkpoint yet.
        </p>
        <Beginning />
      </Empty>
    );
  }
  return (
    <>
      <div class="title">
        <h1>The store</h1>
        <button type="button" onClick={asked.again}>
          Measure again
        </button>
      </div>
      <p class="soft">
        <code data-store>{honest(usage.store)}</code>
      </p>
      <div class="tiles">
        <Tile label="On disk" value={size(usage.disk_bytes)}>
          {count(usage.packs, "pack")}, log {size(usage.log_bytes)}
        </Tile>
        <Tile label="Content" value={size(usage.content_bytes)}>
          {count(usage.checkpoints, "checkpoint")} of {count(usage.subjects, "subject")}
        </Tile>
        <Tile label="Each byte is used" value={`${usage.dedup_ratio ?? 1}×`}>
          {size(usage.unique_bytes)} are unique, in {count(usage.chunks, "chunk")}
        </Tile>
      </div>
      <Kinds kinds={health.kinds} />
      <Growth points={health.over_time} />
      <div class="sides">
        <Verified health={health} onDone={asked.again} />
        <Prune health={health} onDone={asked.again} />
        <Drilled />
      </div>
    </>
  );
}

function Tile(props: { label: string; value: string; children: preact.ComponentChildren }) {
  return (
    <section class="card tile" aria-label={props.label}>
      <small class="soft">{props.label}</small>
      <strong>{props.value}</strong>
      <small class="soft">{props.children}</small>
    </section>
  );
}

function Kinds({ kinds }: { kinds: Health["kinds"] }) {
  const all = kinds.reduce((sum, each) => sum + each.stored_bytes, 0);
  return (
    <section aria-label="Space by kind">
      <h2>Space by kind</h2>
      <div class="card">
        <div class="bar" role="img" aria-label="the share of each kind">
          {kinds.map((each) => (
            <span
              key={each.kind}
              class={`fill ${each.kind}`}
              style={{ width: percent(each.stored_bytes, all).replace("<", "") }}
            />
          ))}
        </div>
        <table class="cards">
          <thead>
            <tr>
              <th>Kind</th>
              <th class="number">Subjects</th>
              <th class="number">Checkpoints</th>
              <th class="number">Content</th>
              <th class="number">Stored</th>
            </tr>
          </thead>
          <tbody>
            {kinds.map((each) => (
              <tr key={each.kind}>
                <td data-label="Kind">
                  <KindMark kind={each.kind} />
                </td>
                <td data-label="Subjects" class="number">
                  {each.subjects}
                </td>
                <td data-label="Checkpoints" class="number">
                  {each.checkpoints}
                </td>
                <td data-label="Content" class="number">
                  {size(each.content_bytes)}
                </td>
                <td data-label="Stored" class="number">
                  {size(each.stored_bytes)} ({percent(each.stored_bytes, all)})
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const WIDTH = 720;
const HEIGHT = 180;

function Growth({ points }: { points: Health["over_time"] }) {
  const last = points.at(-1);
  const first = points[0];
  if (!first || !last || points.length < 2) return null;
  const highest = Math.max(1, last.content_bytes, last.stored_bytes);
  const line = (of: (point: (typeof points)[number]) => number) =>
    points
      .map((point, at) => {
        const x = (at / (points.length - 1)) * WIDTH;
        return `${x.toFixed(1)},${(HEIGHT - (of(point) / highest) * (HEIGHT - 8)).toFixed(1)}`;
      })
      .join(" ");
  const ratio = (last.content_bytes / Math.max(1, last.stored_bytes)).toFixed(1);
  return (
    <section aria-label="Sharing over time">
      <h2>Sharing over time</h2>
      <div class="card">
        <svg
          class="growth"
          viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
          role="img"
          aria-label={`Content grew to ${size(last.content_bytes)}, stored bytes to ${size(last.stored_bytes)}`}
          preserveAspectRatio="none"
        >
          <polyline class="content" points={line((point) => point.content_bytes)} />
          <polyline class="stored" points={line((point) => point.stored_bytes)} />
        </svg>
        <p class="legend">
          <span class="content">content {size(last.content_bytes)}</span>
          <span class="stored">stored {size(last.stored_bytes)}</span>
          <span class="soft">
            {day(first.time)} to {day(last.time)}; {ratio} times less is stored than was frozen
          </span>
        </p>
      </div>
    </section>
  );
}

function Verified({ health, onDone }: { health: Health; onDone: () => void }) {
  const [busy, setBusy] = useState(false);
  const [found, setFound] = useState<Verification | null>(null);
  const verify = async (deep: boolean) => {
    setBusy(true);
    await attempt(async () => {
      const result = await post<Verification>("/v1/verify", { deep });
      setFound(result);
      if (result.ok) tell(`All is well: ${count(result.checkpoints, "checkpoint")} verified`);
      onDone();
    });
    setBusy(false);
  };
  const last = health.verified;
  return (
    <section class="card" aria-label="Verification">
      <h2>Verification</h2>
      {last ? (
        <p>
          <span class={`mark ${last.ok ? "live" : "warn"}`}>
            {last.ok ? "ok" : count(last.problems, "problem")}
          </span>{" "}
          <Age time={last.time} />, {last.deep ? "every byte" : "what the log promises"},{" "}
          {count(last.checkpoints, "checkpoint")}
        </p>
      ) : (
        <p>This store was not verified yet, as far as is known here.</p>
      )}
      {found?.problems.map((each) => (
        <div class="trouble" key={each.where}>
          <p>
            {honest(each.where)}: {honest(each.what)}
          </p>
          {each.hint && <p class="soft">{each.hint}</p>}
        </div>
      ))}
      <div class="buttons">
        <button type="button" disabled={busy} onClick={() => verify(false)}>
          {busy ? "Verifying…" : "Verify"}
        </button>
        <button type="button" disabled={busy} onClick={() => verify(true)}>
          Read every byte
        </button>
      </div>
    </section>
  );
}

function Prune({ health, onDone }: { health: Health; onDone: () => void }) {
  const { usage } = health;
  const prune = () =>
    ask({
      title: "Prune the store",
      text: "The last so many checkpoints of each subject stay, and so does what is pinned or tagged. The others are gone for good.",
      fields: [{ name: "keep", label: "Checkpoints to keep of each subject", value: "50" }],
      action: "Prune",
      danger: true,
      run: async ({ keep }) => {
        const done = await post<Pruning>("/v1/prune", { keep_last: Number(keep) });
        tell(
          `${count(done.removed.length, "checkpoint")} removed, ${size(done.reclaimed_bytes)} freed`,
        );
        onDone();
      },
    });
  return (
    <section class="card" aria-label="Prune">
      <h2>Prune</h2>
      <p>
        By its defaults, prune would remove <b>{count(usage.prune_would_remove, "checkpoint")}</b>{" "}
        and free at least <b>{size(usage.prune_would_free_bytes)}</b>.
      </p>
      <button type="button" class="danger" onClick={prune}>
        Prune…
      </button>
    </section>
  );
}

function Drilled() {
  const { drilled, drilling } = proven.value;
  const asked = useAsked("drills", () => get<Drills>("/v1/drills"), `${drilled} ${drilling}`);
  const [busy, setBusy] = useState(false);
  const drill = async () => {
    setBusy(true);
    await attempt(async () => {
      await post<Drills>("/v1/drills");
      asked.again();
    });
    setBusy(false);
  };
  const told = asked.value;
  const failed = told?.drills.filter((each) => !each.ok) ?? [];
  return (
    <section class="card" aria-label="Drills">
      <h2>Drills</h2>
      {asked.error && <Trouble error={asked.error} again={asked.again} />}
      {told?.time ? (
        <p>
          <span class={`mark ${failed.length ? "warn" : "live"}`}>
            {failed.length ? `${failed.length} failed` : "ok"}
          </span>{" "}
          <Age time={told.time} />, {count(told.drills.filter((each) => each.tried).length, "head")}{" "}
          brought back elsewhere and compared
        </p>
      ) : (
        <p>A drill brings checkpoints back where they can do no harm. There was none yet.</p>
      )}
      {failed.map((each) => (
        <div class="trouble" key={each.subject}>
          <p>
            <CheckpointLink checkpoint={{ id: each.checkpoint, short: each.short }} /> of{" "}
            <SubjectLink subject={each.subject} />: {honest(each.problems.join("; "))}
          </p>
        </div>
      ))}
      <p class="soft">
        {told?.every_hours
          ? `Every ${told.every_hours} hours, ${told.most} at most.`
          : "None are scheduled: serve --drill-every HOURS does."}
      </p>
      <button type="button" disabled={busy || drilling} onClick={drill}>
        {busy || drilling ? "Drilling…" : "Drill now"}
      </button>
    </section>
  );
}
