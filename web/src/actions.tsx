/** What the buttons do: the verbs, asked of the server, with words for what came of them. */

import { call, ofCheckpoint, ofSubject, post } from "./api";
import * as consoles from "./consoles/open";
import { running } from "./live";
import { ask } from "./parts/dialogs";
import { attempt, tell } from "./parts/toasts";
import { go, quoted } from "./route";
import type { Checkpoint, OneCheckpoint, OneMove, SandboxPasses } from "./shapes";
import { honest } from "./words";

/** The session or the sandbox that runs a subject on this server, if one does. */
export function runner(subject: string): { path: string; kind: "session" | "sandbox" } | null {
  const session = running.value.sessions.find((each) => each.subject === subject);
  if (session) return { path: `/v1/sessions/${quoted(session.name)}`, kind: "session" };
  const sandbox = running.value.sandboxes.find((each) => `sandbox/${each.id}` === subject);
  return sandbox ? { path: `/v1/sandboxes/${sandbox.id}`, kind: "sandbox" } : null;
}

export function checkpoint(subject: string): void {
  const found = runner(subject);
  if (!found) return;
  ask({
    title: `Checkpoint ${honest(subject)}`,
    text: "It goes on running; this moment can be brought back later.",
    fields: [{ name: "reason", label: "Reason", value: "manual" }],
    action: "Checkpoint",
    run: async ({ reason }) => {
      const made = await post<OneCheckpoint>(`${found.path}/checkpoint`, { reason });
      tell(`Checkpoint ${made.checkpoint.short} of ${honest(subject)} is stored`);
    },
  });
}

/** Take back what the head did last. */
async function undo(subject: string): Promise<void> {
  await attempt(async () => {
    const { move } = await post<OneMove>(ofSubject(subject, "/undo"));
    tell(`The head of ${honest(move.subject)} is where it was`);
  });
}

/** Go back to a checkpoint, or to the one before the head. */
export function rollback(subject: string, to: Checkpoint | null): void {
  const found = runner(subject);
  const target = to ? to.short : "the checkpoint before the head";
  ask({
    title: `Roll back ${honest(subject)}`,
    text: `Its head moves on to a new checkpoint with the content of ${target}. Nothing is lost.${
      found ? ` The running ${found.kind} goes back to it.` : ""
    }`,
    action: "Roll back",
    run: async () => {
      const here = found?.kind === "sandbox" ? consoles.sandboxOf(subject) : null;
      if (here) await here.rollback(to?.id);
      else
        await post(
          found ? `${found.path}/rollback` : ofSubject(subject, "/rollback"),
          to ? { to: to.id } : {},
        );
      tell(
        `${honest(subject)} is back at ${target}`,
        found ? {} : { action: { label: "Undo", run: () => void undo(subject) }, seconds: 12 },
      );
    },
  });
}

/** A sandbox that this tab may attach to from now on. */
function enter(made: SandboxPasses, told: string): void {
  const one = made.sandboxes[0];
  if (!one) return;
  consoles.remember(one.id, one.token);
  tell(told);
  go({ view: "console", subject: `sandbox/${one.id}` });
}

/** Copy a running sandbox as it is at this moment. */
export function copy(subject: string): void {
  const found = runner(subject);
  if (!found) return;
  ask({
    title: `Fork ${honest(subject)}`,
    text: "A copy begins at this very moment, with its own files and processes; both go on.",
    action: "Fork",
    run: async () => {
      enter(await post<SandboxPasses>(`${found.path}/fork`, { count: 1 }), "The copy runs");
    },
  });
}

/** Begin a sandbox with what a checkpoint of another holds. */
function revive(from: Checkpoint): void {
  ask({
    title: `Fork ${from.short}`,
    text: "A new sandbox begins with the content of this checkpoint, and its console opens.",
    action: "Fork",
    run: async () => {
      const made = await post<SandboxPasses>(ofCheckpoint(from.id, "/sandbox"));
      enter(made, "The new sandbox is there");
    },
  });
}

export function fork(from: Checkpoint): void {
  if (from.kind === "sandbox") {
    revive(from);
    return;
  }
  ask({
    title: `Fork ${from.short}`,
    text: "A new subject begins with the content of this checkpoint; both go on by themselves.",
    fields: [
      {
        name: "name",
        label: "Name of the new subject",
        value: `${from.name}-fork`,
        hint: `it will be ${from.kind}/…`,
      },
    ],
    action: "Fork",
    run: async ({ name }) => {
      const made = await post<OneCheckpoint>(ofCheckpoint(from.id, "/fork"), { name });
      tell(`Forked to ${honest(made.checkpoint.subject)}`);
      go({ view: "subject", subject: made.checkpoint.subject });
    },
  });
}

export async function pin(one: Checkpoint): Promise<void> {
  const verb = one.pinned ? "unpin" : "pin";
  await attempt(async () => {
    await post(ofCheckpoint(one.id, `/${verb}`));
    tell(
      one.pinned ? `${one.short} is no longer pinned` : `${one.short} stays whatever prune says`,
      {
        action: { label: "Undo", run: () => void pin({ ...one, pinned: !one.pinned }) },
      },
    );
  });
}

export function tag(one: Checkpoint): void {
  ask({
    title: `Tag ${one.short}`,
    text: "A tagged checkpoint can be named by its tag, and prune keeps it.",
    fields: [
      { name: "name", label: "Tag", value: "" },
      { name: "value", label: "Value", value: "", optional: true },
    ],
    action: "Tag",
    run: async ({ name, value }) => {
      await post(ofCheckpoint(one.id, "/tags"), { name, value });
      tell(`${one.short} is tagged ${honest(name ?? "")}`);
    },
  });
}

/** Let a session or a sandbox end. */
export function stop(subject: string): void {
  const found = runner(subject);
  if (!found) return;
  const kept =
    found.kind === "session"
      ? "A checkpoint is taken first; a console brings it back."
      : "What is not in a checkpoint is gone.";
  ask({
    title: `Stop ${honest(subject)}`,
    text: kept,
    action: "Stop",
    danger: found.kind === "sandbox",
    run: async () => {
      await call("DELETE", found.path);
      tell(`${honest(subject)} has stopped`);
    },
  });
}
