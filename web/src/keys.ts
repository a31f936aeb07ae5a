/** Shortcuts of single keys. They can be turned off, for those whose software types by itself. */

import { signal } from "@preact/signals";
import { go, route } from "./route";

const SETTING = "holdfast.shortcuts";

export const helpOpen = signal(false);
export const enabled = signal(localStorage.getItem(SETTING) !== "off");

export function setEnabled(on: boolean): void {
  enabled.value = on;
  localStorage.setItem(SETTING, on ? "on" : "off");
}

export const SHORTCUTS: [keys: string, what: string][] = [
  ["/", "search"],
  ["s", "all subjects"],
  ["r", "run a session or a sandbox"],
  ["h", "the store's health"],
  ["↓ ↑ or j k", "the next or the previous checkpoint of a lineage"],
  ["Enter", "open it"],
  ["x", "mark it for a comparison"],
  ["c", "compare the two that are marked"],
  ["u", "one level up"],
  ["?", "this help"],
  ["Esc", "close what is in front"],
];

function isTyping(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null;
  return (
    element?.closest(
      "input:not([type=checkbox]), textarea, select, dialog[open], [contenteditable]",
    ) != null
  );
}

function first(selector: string): HTMLElement | null {
  return document.querySelector<HTMLElement>(selector);
}

function up(): void {
  if (route.value.view === "checkpoint" || route.value.view === "diff") {
    first(".crumbs a:last-of-type")?.click();
  } else {
    go({ view: "subjects" });
  }
}

function press(event: KeyboardEvent): void {
  if (event.metaKey || event.ctrlKey || event.altKey || isTyping(event.target)) return;
  const acts: Record<string, () => void> = {
    "?": () => {
      helpOpen.value = true;
    },
    ...(enabled.value
      ? {
          "/": () => first("[data-search]")?.focus(),
          s: () => go({ view: "subjects" }),
          r: () => go({ view: "run" }),
          h: () => go({ view: "store" }),
          u: up,
          c: () => first("[data-compare]")?.click(),
          j: () => first(".tree [data-row] a, .subjects a")?.focus(),
        }
      : {}),
  };
  const act = acts[event.key];
  if (!act || event.defaultPrevented) return;
  event.preventDefault();
  act();
}

export function begin(): void {
  addEventListener("keydown", press);
}
