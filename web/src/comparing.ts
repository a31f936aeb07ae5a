/** Two checkpoints side by side: what the views show of a difference. Pure. */

import type { Content, Diff, File, Variable } from "./shapes";

export type Word = "added" | "removed" | "changed";

export interface VariablePair {
  name: string;
  change: Word;
  before: Variable | null;
  after: Variable | null;
}

/** The variables that differ, each as it was and as it is. */
export function variables(diff: Diff, before: Content, after: Content): VariablePair[] {
  const old = new Map(before.variables?.map((each) => [each.name, each]));
  const fresh = new Map(after.variables?.map((each) => [each.name, each]));
  return (diff.variables ?? []).map((each) => ({
    name: each.name,
    change: each.change,
    before: old.get(each.name) ?? null,
    after: fresh.get(each.name) ?? null,
  }));
}

export interface FilePair {
  path: string;
  change: Word;
  before: File | null;
  after: File | null;
}

/**
 * The files that differ in kind, size or time. Folders are only there for what is in them. Of one
 * that is missing in a list that was cut short, nothing is known, and nothing is said.
 */
export function files(before: Content, after: Content): FilePair[] | null {
  if (!before.files || !after.files) return null;
  const old = new Map(before.files.map((each) => [each.path, each]));
  const fresh = new Map(after.files.map((each) => [each.path, each]));
  const found: FilePair[] = [];
  for (const path of new Set([...old.keys(), ...fresh.keys()])) {
    const a = old.get(path) ?? null;
    const b = fresh.get(path) ?? null;
    if ((a ?? b)?.kind === "folder") continue;
    if ((!a && before.more_files) || (!b && after.more_files)) continue;
    if (a && b && a.kind === b.kind && a.size === b.size && a.time === b.time) continue;
    found.push({
      path,
      change: a === null ? "added" : b === null ? "removed" : "changed",
      before: a,
      after: b,
    });
  }
  return found.sort((a, b) => (a.path < b.path ? -1 : 1));
}

/** Changes inside values that only say that another capture was made. */
export function isNoise(part: string, path: string): boolean {
  return (
    part === "report" ||
    part === "sources" ||
    (part === "environment" && (path === "created" || path === "execution_count"))
  );
}

/** `state_info.rows.kept` without what every state has around it. */
export function place(part: string, path: string): string {
  if (part === "state") return path.replace(/^state_info\.?/, "") || "state";
  return path ? `${part}: ${path}` : part;
}
