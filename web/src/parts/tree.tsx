/** A lineage along time, newest on top. Only the rows that can be seen are there. */

import type { JSX } from "preact";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { doomed } from "../deleting";
import { crossing, draw, path } from "../lanes";
import { now } from "../live";
import { address, go, type Route } from "../route";
import type { Checkpoint, Lineage } from "../shapes";
import { age, day, exact, honest, size } from "../words";
import { CheckpointLink, follow, marks, SubjectLink } from "./links";

const COLUMN = 16;
const MOST_COLUMNS = 12;
const OVERSCAN = 6;

interface Window {
  first: number;
  last: number;
  row: number;
}

/** Which rows can be seen in a box that scrolls. */
function useWindow(box: { current: HTMLDivElement | null }, total: number): Window {
  const [view, set] = useState<Window>({ first: 0, last: 40, row: 48 });
  useLayoutEffect(() => {
    const one = box.current;
    if (!one) return;
    const look = () => {
      const row = Number.parseFloat(getComputedStyle(one).getPropertyValue("--row")) || 48;
      const first = Math.max(0, Math.floor(one.scrollTop / row) - OVERSCAN);
      const last = Math.min(
        total - 1,
        Math.ceil((one.scrollTop + one.clientHeight) / row) + OVERSCAN,
      );
      set((was) =>
        was.first === first && was.last === last && was.row === row ? was : { first, last, row },
      );
    };
    look();
    one.addEventListener("scroll", look, { passive: true });
    const sized = new ResizeObserver(look);
    sized.observe(one);
    return () => {
      one.removeEventListener("scroll", look);
      sized.disconnect();
    };
  }, [box, total]);
  return view;
}

export function Tree(props: {
  lineage: Lineage;
  marked: ReadonlySet<string>;
  onMark: (id: string) => void;
}) {
  const { lineage } = props;
  const { checkpoints } = lineage;
  const box = useRef<HTMLDivElement>(null);
  const view = useWindow(box, checkpoints.length);
  const drawing = useMemo(() => draw(checkpoints), [checkpoints]);
  const told = useMemo(() => relations(lineage), [lineage]);
  const wanted = useRef<number | null>(null);

  // A row that the arrow keys lead to has to be drawn before it can have the focus.
  useEffect(() => {
    if (wanted.current === null) return;
    const row = box.current?.querySelector<HTMLElement>(`[data-row="${wanted.current}"] a`);
    if (row) {
      wanted.current = null;
      row.focus({ preventScroll: true });
    }
  });

  const move = (event: JSX.TargetedKeyboardEvent<HTMLDivElement>) => {
    const at = (event.target as HTMLElement).closest<HTMLElement>("[data-row]");
    if (!at || event.metaKey || event.ctrlKey || event.altKey) return;
    const row = Number(at.dataset.row);
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    let to = step === undefined ? null : row + step;
    if (event.key === "Home") to = 0;
    if (event.key === "End") to = checkpoints.length - 1;
    const one = checkpoints[row];
    if (event.key === "x" && one) props.onMark(one.id);
    if (to === null || to < 0 || to >= checkpoints.length) return;
    event.preventDefault();
    wanted.current = to;
    const element = box.current;
    if (!element) return;
    const top = to * view.row;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + view.row > element.scrollTop + element.clientHeight) {
      element.scrollTop = top + view.row - element.clientHeight;
    }
    element.querySelector<HTMLElement>(`[data-row="${to}"] a`)?.focus({ preventScroll: true });
  };

  const shown = Math.min(drawing.width, MOST_COLUMNS);
  const last = Math.min(view.last, checkpoints.length - 1);
  const rows = [];
  for (let at = view.first; at <= last; at += 1) {
    const one = checkpoints[at];
    if (!one) continue;
    rows.push(
      row({
        at,
        total: checkpoints.length,
        checkpoint: one,
        newDay: at === 0 || day(checkpoints[at - 1]?.time ?? "") !== day(one.time),
        head: one.id === lineage.head,
        relation: told.get(one.id),
        marked: props.marked.has(one.id),
        going: doomed.value.has(one.id),
        now: now.value,
        onMark: props.onMark,
        indent: shown * COLUMN,
        top: at * view.row,
      }),
    );
  }
  return (
    // biome-ignore lint/a11y/noStaticElementInteractions: the links inside have the focus
    <div
      class="tree"
      ref={box}
      onKeyDown={move}
      data-total={checkpoints.length}
      style={{ "--total": checkpoints.length }}
    >
      <ol class="rows" style={{ height: `${checkpoints.length * view.row}px` }}>
        {rows}
      </ol>
      <svg
        class="lanes"
        aria-hidden="true"
        width={shown * COLUMN}
        height={(last - view.first + 1) * view.row}
        style={{ top: `${view.first * view.row}px` }}
        viewBox={`0 ${view.first * view.row} ${shown * COLUMN} ${Math.max(1, (last - view.first + 1) * view.row)}`}
      >
        {crossing(drawing, view.first, last).map((edge) => (
          <path
            key={`${edge.from} ${edge.to}`}
            class={`lane lane-${edge.lane % 6}`}
            d={path(edge, view.row, COLUMN, [view.first - 1, last + 1])}
          />
        ))}
        {checkpoints.slice(view.first, last + 1).map((each, index) => {
          const at = view.first + index;
          const column = drawing.columns[at] ?? 0;
          const where = { cx: (column + 0.5) * COLUMN, cy: (at + 0.5) * view.row };
          const kind = each.id === lineage.head ? "head" : each.rollback_of ? "rollback" : "";
          return (
            <circle
              key={each.id}
              {...where}
              r={kind === "head" ? 6 : 4.5}
              class={`node lane-${column % 6} ${kind}`}
            />
          );
        })}
      </svg>
    </div>
  );
}

interface Relation {
  rollbackOf: Checkpoint | "gone" | null;
  from: Checkpoint[];
  to: Checkpoint[];
}

/** What leads from a checkpoint elsewhere: rollbacks and forks. */
function relations(lineage: Lineage): Map<string, Relation> {
  const byId = new Map(lineage.checkpoints.map((each) => [each.id, each]));
  const origins = new Map(lineage.origins.map((each) => [each.id, each]));
  const found = new Map<string, Relation>();
  const of = (id: string): Relation => {
    const there = found.get(id) ?? { rollbackOf: null, from: [], to: [] };
    found.set(id, there);
    return there;
  };
  for (const each of lineage.checkpoints) {
    if (each.rollback_of) of(each.id).rollbackOf = byId.get(each.rollback_of) ?? "gone";
    for (const parent of each.parents) {
      const origin = origins.get(parent);
      if (origin) of(each.id).from.push(origin);
    }
  }
  for (const fork of lineage.forks) {
    for (const parent of fork.parents) if (byId.has(parent)) of(parent).to.push(fork);
  }
  return found;
}

/** A row; no component, because many of them are made while one scrolls. */
function row(props: {
  at: number;
  total: number;
  checkpoint: Checkpoint;
  newDay: boolean;
  head: boolean;
  relation: Relation | undefined;
  marked: boolean;
  going: boolean;
  now: number;
  onMark: (id: string) => void;
  indent: number;
  top: number;
}) {
  const { checkpoint, relation, going } = props;
  const to: Route = { view: "checkpoint", id: checkpoint.id };
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the link inside does the same for keys
    <li
      key={checkpoint.id}
      class={`row ${props.head ? "is-head" : ""} ${going ? "going" : ""}`}
      aria-setsize={props.total}
      aria-posinset={props.at + 1}
      data-row={props.at}
      style={{ top: `${props.top}px`, paddingInlineStart: `${props.indent + 8}px` }}
      onClick={(event) => {
        // The whole row leads to the checkpoint; what is inside has its own business.
        const inner = (event.target as HTMLElement).closest("a, input, label");
        if (!inner) go({ view: "checkpoint", id: checkpoint.id });
      }}
    >
      <span class="what">
        <a href={address(to)} class="reason" onClick={(event) => follow(event, to)}>
          {honest(checkpoint.reason) || "no reason"}
        </a>
        {checkpoint.stage && <span class="stage">{honest(checkpoint.stage)}</span>}
        {marks(checkpoint, props.head)}
        {relation?.rollbackOf && (
          <span class="soft">
            back to{" "}
            {relation.rollbackOf === "gone" ? (
              "one that is not in this store"
            ) : (
              <CheckpointLink checkpoint={relation.rollbackOf} />
            )}
          </span>
        )}
        {relation?.from.map((each) => (
          <span class="soft" key={each.id}>
            forked from <SubjectLink subject={each.subject} />
          </span>
        ))}
        {relation?.to.slice(0, 3).map((each) => (
          <span class="soft" key={each.id}>
            forked to <SubjectLink subject={each.subject} />
          </span>
        ))}
        {(relation?.to.length ?? 0) > 3 && (
          <span class="soft">and {(relation?.to.length ?? 0) - 3} more</span>
        )}
        {going && <span class="mark warn">going</span>}
      </span>
      <code class="short">{checkpoint.short}</code>
      <span class="size" title="new in the store, of the whole size">
        <b>+{size(checkpoint.stored_bytes)}</b> of {size(checkpoint.size_bytes)}
      </span>
      <span class={`when ${props.newDay ? "new-day" : ""}`}>
        <time dateTime={checkpoint.time} title={exact(checkpoint.time)}>
          {age(checkpoint.time, props.now)}
        </time>
      </span>
      <label class="pick">
        <input
          type="checkbox"
          checked={props.marked}
          aria-label={`Compare ${checkpoint.short}`}
          onChange={() => props.onMark(checkpoint.id)}
        />
      </label>
    </li>
  );
}
