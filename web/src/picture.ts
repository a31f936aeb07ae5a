/** The store as the page knows it, and how events of the server change it. Pure. */

import type { Checkpoint, Lineage, Move, Sandbox, Subject } from "./shapes";

export interface Running {
  sessions: RunningSession[];
  sandboxes: Omit<Sandbox, "idle_seconds">[];
}

/** When the store was last verified and drilled, and whether a drill is under way. */
export interface Proven {
  verified: string | null;
  drilled: string | null;
  drilling: boolean;
}

export interface RunningSession {
  name: string;
  subject: string;
  busy: boolean;
  clients: number;
}

export interface Change {
  event: "change";
  since: number;
  sequence: number;
  complete: boolean;
  subjects: Subject[];
  gone: string[];
  checkpoints: Checkpoint[];
  removed: string[];
  moves: Move[];
}

export interface Picture {
  sequence: number;
  subjects: ReadonlyMap<string, Subject>;
  /** Those that are being looked at. */
  lineages: ReadonlyMap<string, Lineage>;
}

export const EMPTY: Picture = { sequence: -1, subjects: new Map(), lineages: new Map() };

/** The picture after a change, or null when it does not follow and all must be asked anew. */
export function changedBy(picture: Picture, change: Change): Picture | null {
  if (!change.complete || change.since > picture.sequence) return null;
  if (change.sequence <= picture.sequence) return picture; // known already
  const subjects = new Map(picture.subjects);
  for (const name of change.gone) subjects.delete(name);
  for (const each of change.subjects) subjects.set(each.subject, each);
  const lineages = new Map(picture.lineages);
  for (const [name, lineage] of lineages) {
    lineages.set(name, changed(lineage, change, subjects.get(name)));
  }
  return { sequence: change.sequence, subjects, lineages };
}

function changed(lineage: Lineage, change: Change, summary: Subject | undefined): Lineage {
  const name = lineage.subject;
  const own = change.checkpoints.filter((each) => each.subject === name);
  const moves = change.moves.filter((each) => each.subject === name);
  const others = change.checkpoints.filter((each) => each.subject !== name);
  if (!own.length && !moves.length && !others.length && !change.removed.length) return lineage;
  const removed = new Set(change.removed);
  const checkpoints = merged(lineage.checkpoints, own, removed);
  const ids = new Set(checkpoints.map((each) => each.id));
  const forks = others.filter((each) => each.parents.some((parent) => ids.has(parent)));
  return {
    subject: name,
    head: summary ? (summary.head?.id ?? null) : null,
    checkpoints,
    origins: lineage.origins.filter((each) => !removed.has(each.id)),
    forks: merged(lineage.forks, forks, removed),
    moves: [...lineage.moves, ...moves],
  };
}

/** Newest first, with what is new or changed put in and what is gone left out. */
function merged(
  before: Checkpoint[],
  news: Checkpoint[],
  removed: ReadonlySet<string>,
): Checkpoint[] {
  const fresh = new Map(news.map((each) => [each.id, each]));
  const kept: Checkpoint[] = [];
  for (const each of before) {
    if (removed.has(each.id)) continue;
    kept.push(fresh.get(each.id) ?? each);
    fresh.delete(each.id);
  }
  const added = [...fresh.values()].filter((each) => !removed.has(each.id));
  if (!added.length) return kept;
  return [...added, ...kept].sort((a, b) => b.sequence - a.sequence);
}

export interface Filter {
  text: string;
  kind: string;
}

/** Subjects whose name, reason or stage has all the words, the latest touched first. */
export function matching(subjects: Iterable<Subject>, filter: Filter): Subject[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  return [...subjects]
    .filter((each) => filter.kind === "" || each.kind === filter.kind)
    .filter((each) => {
      const told = `${each.subject} ${each.head?.reason ?? ""} ${each.head?.stage ?? ""} ${each.head?.short ?? ""}`;
      const place = told.toLowerCase();
      return words.every((word) => place.includes(word));
    })
    .sort((a, b) => (a.time < b.time ? 1 : a.time > b.time ? -1 : 0));
}
