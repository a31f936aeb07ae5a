/** Bundles: several subjects frozen together, and brought back together. */

import { get, ofCheckpoint, post } from "./api";
import { ask } from "./parts/dialogs";
import { tell } from "./parts/toasts";
import { go } from "./route";
import type { Checkpoint, Members, OneCheckpoint } from "./shapes";
import { honest } from "./words";

/** Freeze subjects together under a name. */
export function bind(name: string, members: readonly string[]): void {
  ask({
    title: name ? `Bind ${honest(name)} again` : "Bind subjects together",
    text: "All of them stand still for a moment, and are frozen together or not at all. What nobody runs is bound by its head.",
    fields: [
      { name: "name", label: "Name of the bundle", value: name },
      {
        name: "members",
        label: "Subjects",
        value: members.join(" "),
        hint: "kind/name, with spaces between them",
      },
      { name: "reason", label: "Reason", value: "manual" },
    ],
    action: "Bind",
    run: async (given) => {
      const made = await post<OneCheckpoint>("/v1/bundles", {
        name: given.name,
        members: (given.members ?? "").split(/[\s,]+/).filter((each) => each !== ""),
        reason: given.reason,
      });
      tell(`${honest(made.checkpoint.subject)} is stored`);
      go({ view: "checkpoint", id: made.checkpoint.id });
    },
  });
}

/** The same members once more. */
export async function bindAgain(head: Checkpoint): Promise<void> {
  const { members } = await get<Members>(ofCheckpoint(head.id, "/members"));
  bind(
    head.name,
    members.map((each) => each.subject),
  );
}

/** Bring all members of a bundle back. */
export function bringBack(bundle: Checkpoint): void {
  ask({
    title: `Bring all back to ${bundle.short}`,
    text: "What runs here goes back to that moment; of everything else the head moves. All of them, or none.",
    action: "Bring all back",
    run: async () => {
      await post<OneCheckpoint>(ofCheckpoint(bundle.id, "/members/restore"));
      tell(`All members of ${honest(bundle.subject)} are back at ${bundle.short}`);
    },
  });
}
