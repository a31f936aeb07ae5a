/** Light, dark, or as the system has it. */

import { signal } from "@preact/signals";

const SETTING = "holdfast.theme";
export type Theme = "system" | "light" | "dark";

function stored(): Theme {
  const found = localStorage.getItem(SETTING);
  return found === "light" || found === "dark" ? found : "system";
}

export const theme = signal<Theme>("system");

export function setTheme(to: Theme): void {
  theme.value = to;
  localStorage.setItem(SETTING, to);
  if (to === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = to;
}

export function begin(): void {
  setTheme(stored());
}
