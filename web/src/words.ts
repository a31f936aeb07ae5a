/** Values as words for people. Pure; the same words as the command line's. */

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** `0 B`, `999 B`, `1.5 MB`: decimal units, three figures at most. */
export function size(bytes: number): string {
  let value = bytes;
  let unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const figures = unit > 0 && value < 9.95 ? value.toFixed(1) : value.toFixed(0);
  return `${figures} ${UNITS[unit]}`;
}

const SPANS: [limit: number, length: number, word: string][] = [
  [60, 1, "s"],
  [3600, 60, "min"],
  [86400, 3600, "h"],
  [31 * 86400, 86400, "d"],
];

/** How long ago; the day itself once it is more than a month. */
export function age(time: string, now: number): string {
  const seconds = (now - Date.parse(time)) / 1000;
  if (seconds < 0) return seconds > -5 ? "now" : day(time);
  for (const [limit, length, word] of SPANS) {
    if (seconds < limit) return `${Math.floor(seconds / length)} ${word} ago`;
  }
  return day(time);
}

export function day(time: string): string {
  return time.slice(0, 10);
}

/** A moment in full, in the reader's own time zone. */
export function exact(time: string): string {
  return new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "medium" });
}

/** `1 checkpoint`, `2 checkpoints`. */
export function count(number: number, word: string): string {
  return `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
}

export function percent(part: number, whole: number): string {
  if (whole <= 0) return "0%";
  const share = (100 * part) / whole;
  return `${share > 0 && share < 1 ? "<1" : share.toFixed(0)}%`;
}

/** A number for a table: as many figures as help. */
export function figure(value: number | null): string {
  if (value === null || Number.isNaN(value)) return "NaN";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const magnitude = Math.abs(value);
  return magnitude >= 1e-4 && magnitude < 1e7
    ? String(Number(value.toPrecision(5)))
    : value.toExponential(2);
}

// The marks that turn the direction of text make a name read as another one.
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for
const TRICKS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;

/** Text that others wrote, with the characters spelled out that would mislead a reader. */
export function honest(text: string): string {
  return text.replace(TRICKS, (found) => {
    return `\\u${(found.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`;
  });
}
