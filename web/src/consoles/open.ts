/** The consoles that are open in this tab: going to another view and back finds them as they were. */

import type { Console } from "./console";
import { remember, SandboxConsole, tokenOf } from "./sandbox";
import { SessionConsole } from "./session";

const open = new Map<string, Console>();

/** The console of a subject, or null when a token is needed first. */
export function find(subject: string): Console | null {
  const there = open.get(subject);
  if (there && there.state.value !== "ended") return there;
  const [kind = "", ...rest] = subject.split("/");
  if (kind !== "session") return null;
  const made = new SessionConsole(rest.join("/"));
  open.set(subject, made);
  return made;
}

/** A console of a new sandbox; its subject. */
export async function create(name: string): Promise<string> {
  const made = await SandboxConsole.create(name);
  const subject = `sandbox/${made.id}`;
  open.set(subject, made);
  return subject;
}

/** Go back to a sandbox with its token. */
export async function attach(subject: string, token: string): Promise<Console> {
  const id = subject.replace(/^sandbox\//, "");
  const made = await SandboxConsole.attach(id, token);
  open.set(subject, made);
  return made;
}

export function rememberedToken(subject: string): string | null {
  return tokenOf(subject.replace(/^sandbox\//, ""));
}

/** The console of a sandbox, if it is open in this tab. */
export function sandboxOf(subject: string): SandboxConsole | null {
  const found = open.get(subject);
  return found instanceof SandboxConsole && found.state.value === "ready" ? found : null;
}

export { remember };

export function close(subject: string): void {
  open.get(subject)?.leave();
  open.delete(subject);
}
