/** Where one is in the page: addresses to routes and back. The addresses hold no secret. */

import { signal } from "@preact/signals";

export type Route =
  | { view: "subjects" }
  | { view: "subject"; subject: string }
  | { view: "checkpoint"; id: string }
  | { view: "diff"; before: string; after: string }
  | { view: "store" }
  | { view: "run" }
  | { view: "console"; subject: string }
  | { view: "lost"; path: string };

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** What an address means. */
export function parse(path: string, query: string): Route {
  const [first, ...rest] = path.split("/").filter((each) => each !== "");
  const names = rest.map(decoded);
  if (first === undefined) return { view: "subjects" };
  if (first === "subjects" && names.length >= 2) {
    return { view: "subject", subject: names.join("/") };
  }
  if (first === "checkpoints" && names.length === 1) {
    return { view: "checkpoint", id: names[0] ?? "" };
  }
  if (first === "diff" && names.length === 0) {
    const given = new URLSearchParams(query);
    return { view: "diff", before: given.get("before") ?? "", after: given.get("after") ?? "" };
  }
  if (first === "store" && names.length === 0) return { view: "store" };
  if (first === "run" && names.length === 0) return { view: "run" };
  if (first === "console" && names.length >= 2) {
    return { view: "console", subject: names.join("/") };
  }
  return { view: "lost", path };
}

/** `kind/name` as a piece of an address: its slashes stay, everything else is quoted. */
export function quoted(subject: string): string {
  return subject.split("/").map(encodeURIComponent).join("/");
}

/** The address of a route. */
export function address(route: Route): string {
  switch (route.view) {
    case "subjects":
      return "/";
    case "subject":
      return `/subjects/${quoted(route.subject)}`;
    case "checkpoint":
      return `/checkpoints/${encodeURIComponent(route.id)}`;
    case "diff":
      return `/diff?${new URLSearchParams({ before: route.before, after: route.after })}`;
    case "console":
      return `/console/${quoted(route.subject)}`;
    case "lost":
      return route.path;
    default:
      return `/${route.view}`;
  }
}

export const route = signal<Route>({ view: "subjects" });

function read(): void {
  route.value = parse(location.pathname, location.search);
}

/** Follow the address bar; called once. */
export function begin(): void {
  read();
  addEventListener("popstate", read);
}

/** Go somewhere in the page. */
export function go(to: Route, replace = false): void {
  const target = address(to);
  if (replace) history.replaceState(null, "", target);
  else if (target !== location.pathname + location.search) history.pushState(null, "", target);
  read();
  if (!replace) scrollTo(0, 0);
}
