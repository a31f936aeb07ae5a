/** What stands where there is nothing to show: yet, at all, or because it was refused. */

import type { ComponentChildren } from "preact";
import type { Refusal } from "../api";

export function Trouble({ error, again }: { error: Refusal; again?: () => void }) {
  return (
    <div class="trouble" role="alert">
      <p>{error.message}</p>
      {error.hint && <p class="soft">{error.hint}</p>}
      {again && (
        <button type="button" onClick={again}>
          Try again
        </button>
      )}
    </div>
  );
}

export function Waiting({ what }: { what: string }) {
  return (
    <p class="waiting soft" role="status">
      {what}…
    </p>
  );
}

export function Empty(props: { title: string; children: ComponentChildren }) {
  return (
    <section class="empty card">
      <h2>{props.title}</h2>
      {props.children}
    </section>
  );
}
