/** A lineage as a drawing: each checkpoint in a column, and the lines between them. Pure. */

import type { Checkpoint } from "./shapes";

export interface Edge {
  /** Rows, counted from the newest: from the child down to its parent. */
  from: number;
  to: number;
  fromColumn: number;
  toColumn: number;
  /** The column in which it runs between the two. */
  lane: number;
}

export interface Drawing {
  columns: Int32Array;
  width: number;
  /** Edges by block of rows, so that a window of a long drawing finds its own at once. */
  blocks: Edge[][];
}

export const BLOCK = 128;

/** Lay out checkpoints that are given newest first, so that children come before their parents. */
export function draw(checkpoints: readonly Checkpoint[]): Drawing {
  const row = new Map(checkpoints.map((each, at) => [each.id, at]));
  const columns = new Int32Array(checkpoints.length);
  const blocks: Edge[][] = [];
  /** What each lane leads down to, and the edges in it. */
  const lanes: (number | null)[] = [];
  const open: Edge[][] = [];
  let width = 1;

  const free = (start: number): number => {
    for (let at = start; at < lanes.length; at += 1) if (lanes[at] === null) return at;
    lanes.push(null);
    open.push([]);
    return lanes.length - 1;
  };

  for (const [at, checkpoint] of checkpoints.entries()) {
    let column = lanes.indexOf(at);
    if (column < 0) column = free(0);
    columns[at] = column;
    for (let lane = column; lane < lanes.length; lane += 1) {
      if (lanes[lane] !== at) continue;
      for (const edge of open[lane] ?? []) {
        edge.toColumn = column;
        place(blocks, edge);
      }
      lanes[lane] = null;
      open[lane] = [];
    }
    let first = true;
    for (const parent of checkpoint.parents) {
      const to = row.get(parent);
      if (to === undefined || to <= at) continue;
      const lane = first ? column : laneFor(lanes, to, () => free(column + 1));
      lanes[lane] = to;
      const edge = { from: at, to, fromColumn: column, toColumn: column, lane };
      open[lane]?.push(edge);
      first = false;
    }
    width = Math.max(width, lanes.length);
    while (lanes.length && lanes.at(-1) === null) {
      lanes.pop();
      open.pop();
    }
  }
  return { columns, width, blocks };
}

function laneFor(lanes: (number | null)[], to: number, free: () => number): number {
  const there = lanes.indexOf(to);
  return there >= 0 ? there : free();
}

function place(blocks: Edge[][], edge: Edge): void {
  for (
    let block = Math.floor(edge.from / BLOCK);
    block <= Math.floor(edge.to / BLOCK);
    block += 1
  ) {
    blocks[block] ??= [];
    blocks[block]?.push(edge);
  }
}

/** The edges that cross the rows from `first` to `last`. */
export function crossing(drawing: Drawing, first: number, last: number): Edge[] {
  const found = new Set<Edge>();
  for (let block = Math.floor(first / BLOCK); block <= Math.floor(last / BLOCK); block += 1) {
    for (const edge of drawing.blocks[block] ?? []) {
      if (edge.from <= last && edge.to >= first) found.add(edge);
    }
  }
  return [...found];
}

/** The path of an edge in a drawing whose rows and columns have these sizes. */
export function path(edge: Edge, row: number, column: number, bounds: [number, number]): string {
  const x = (at: number) => (at + 0.5) * column;
  // Long lines are cut to what can be seen: browsers draw what is far away, too.
  const top = Math.max(edge.from, bounds[0]);
  const bottom = Math.min(edge.to, bounds[1]);
  const y = (at: number) => (at + 0.5) * row;
  let text: string;
  if (top === edge.from) {
    text = `M${x(edge.fromColumn)} ${y(edge.from)}`;
    if (edge.lane !== edge.fromColumn) {
      const middle = y(edge.from) + row / 2;
      text += `C${x(edge.fromColumn)} ${middle} ${x(edge.lane)} ${middle} ${x(edge.lane)} ${y(edge.from) + row}`;
    }
  } else {
    text = `M${x(edge.lane)} ${y(top)}`;
  }
  if (bottom !== edge.to || edge.lane === edge.toColumn) return `${text}V${y(bottom)}`;
  const above = y(edge.to) - row;
  const middle = y(edge.to) - row / 2;
  return `${text}V${Math.max(above, y(top))}C${x(edge.lane)} ${middle} ${x(edge.toColumn)} ${middle} ${x(edge.toColumn)} ${y(edge.to)}`;
}
