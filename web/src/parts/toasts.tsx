/** Short messages at the edge: what was done, with a way back, and what was refused. */

import { signal } from "@preact/signals";
import { refusalOf } from "../api";

interface Toast {
  id: number;
  text: string;
  hint: string | null;
  tone: "good" | "bad";
  action: { label: string; run: () => void } | null;
}

const toasts = signal<Toast[]>([]);
let last = 0;

export function dismiss(id: number): void {
  toasts.value = toasts.value.filter((each) => each.id !== id);
}

/** Show a message for some seconds; gives its id. */
export function tell(
  text: string,
  more: { hint?: string; action?: Toast["action"]; seconds?: number; tone?: Toast["tone"] } = {},
): number {
  last += 1;
  const id = last;
  const toast: Toast = {
    id,
    text,
    hint: more.hint ?? null,
    tone: more.tone ?? "good",
    action: more.action ?? null,
  };
  toasts.value = [...toasts.value.slice(-3), toast];
  setTimeout(() => dismiss(id), (more.seconds ?? 6) * 1000);
  return id;
}

/** Show why something was refused, with what to do about it. */
export function tellRefusal(error: unknown): void {
  const told = refusalOf(error);
  tell(told.message, { ...(told.hint ? { hint: told.hint } : {}), tone: "bad", seconds: 12 });
}

/** Do something on the server; what it refuses is shown. Gives whether it was done. */
export async function attempt(work: () => Promise<unknown>): Promise<boolean> {
  try {
    await work();
    return true;
  } catch (error) {
    tellRefusal(error);
    return false;
  }
}

export function Toasts() {
  return (
    <div class="toasts" role="status" aria-live="polite">
      {toasts.value.map((each) => (
        <div key={each.id} class={`toast ${each.tone}`}>
          <div class="grow">
            <p>{each.text}</p>
            {each.hint && <p class="soft">{each.hint}</p>}
          </div>
          {each.action && (
            <button
              type="button"
              class="plain strong"
              onClick={() => {
                dismiss(each.id);
                each.action?.run();
              }}
            >
              {each.action.label}
            </button>
          )}
          <button type="button" class="plain" aria-label="Dismiss" onClick={() => dismiss(each.id)}>
            ×
          </button>
        </div>
      ))}
    </div>
  );
}
