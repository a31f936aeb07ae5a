import type { Checkpoint } from "../src/shapes";

/** A checkpoint of which only what is given matters. */
export function checkpoint(
  id: string,
  parents: string[] = [],
  more: Partial<Checkpoint> = {},
): Checkpoint {
  return {
    id,
    short: id.slice(0, 8),
    digest: "",
    subject: "state/demo",
    kind: "state",
    name: "demo",
    parents,
    reason: "manual",
    stage: null,
    time: "2026-01-01T00:00:00.000000Z",
    size_bytes: 1,
    stored_bytes: 1,
    part_count: 1,
    sequence: 1,
    tags: {},
    pinned: false,
    rollback_of: null,
    signer: "",
    foreign: false,
    ...more,
  };
}
