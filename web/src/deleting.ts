/**
 * Deleting with a way back: a deletion is sent to the server only after some seconds, and until
 * then it can be taken back. Leaving the page keeps the checkpoint.
 */

import { signal } from "@preact/signals";
import { call, ofCheckpoint } from "./api";
import { attempt, dismiss, tell } from "./parts/toasts";
import type { Checkpoint } from "./shapes";

export const SECONDS = 8;

const waiting = new Map<string, { timer: ReturnType<typeof setTimeout>; toast: number }>();
/** Ids of checkpoints that are about to go. */
export const doomed = signal<ReadonlySet<string>>(new Set());

function publish(): void {
  doomed.value = new Set(waiting.keys());
}

export function keep(id: string): void {
  const found = waiting.get(id);
  if (!found) return;
  clearTimeout(found.timer);
  dismiss(found.toast);
  waiting.delete(id);
  publish();
}

export function doom(checkpoint: Checkpoint): void {
  if (waiting.has(checkpoint.id)) return;
  const timer = setTimeout(async () => {
    await attempt(() => call("DELETE", ofCheckpoint(checkpoint.id)));
    waiting.delete(checkpoint.id);
    publish();
  }, SECONDS * 1000);
  const toast = tell(`${checkpoint.short} will be deleted in ${SECONDS} seconds`, {
    hint: "what other checkpoints share with it stays",
    action: { label: "Undo", run: () => keep(checkpoint.id) },
    seconds: SECONDS,
  });
  waiting.set(checkpoint.id, { timer, toast });
  publish();
}
