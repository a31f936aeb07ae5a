import { describe, expect, it } from "vitest";
import { type Change, changedBy, EMPTY, matching, type Picture } from "../src/picture";
import type { Checkpoint, Lineage, Subject } from "../src/shapes";
import { checkpoint } from "./checkpoint";

const change = (more: Partial<Change>): Change => ({
  event: "change",
  since: 5,
  sequence: 6,
  complete: true,
  subjects: [],
  gone: [],
  checkpoints: [],
  removed: [],
  moves: [],
  ...more,
});

const summary = (head: Checkpoint | null, more: Partial<Subject> = {}): Subject => ({
  subject: "state/demo",
  kind: "state",
  name: "demo",
  head,
  count: 1,
  size_bytes: 1,
  time: "2026-01-01T00:00:00.000000Z",
  ...more,
});

const first = checkpoint("a", [], { sequence: 4 });
const lineage: Lineage = {
  subject: "state/demo",
  head: "a",
  checkpoints: [first],
  origins: [],
  forks: [],
  moves: [],
};
const picture: Picture = {
  sequence: 5,
  subjects: new Map([["state/demo", summary(first)]]),
  lineages: new Map([["state/demo", lineage]]),
};

describe("the picture of a store", () => {
  it("takes a new checkpoint in, on top, with its head", () => {
    const made = checkpoint("b", ["a"], { sequence: 6 });
    const next = changedBy(picture, change({ checkpoints: [made], subjects: [summary(made)] }));
    expect(next?.sequence).toBe(6);
    expect(next?.lineages.get("state/demo")?.checkpoints.map((each) => each.id)).toEqual([
      "b",
      "a",
    ]);
    expect(next?.lineages.get("state/demo")?.head).toBe("b");
    expect(picture.lineages.get("state/demo")?.checkpoints).toHaveLength(1);
  });

  it("replaces what was pinned and drops what was deleted", () => {
    const pinned = { ...first, pinned: true };
    const next = changedBy(picture, change({ checkpoints: [pinned] }));
    expect(next?.lineages.get("state/demo")?.checkpoints).toEqual([pinned]);
    const gone = changedBy(picture, change({ removed: ["a"], gone: ["state/demo"] }));
    expect(gone?.subjects.size).toBe(0);
    expect(gone?.lineages.get("state/demo")?.checkpoints).toEqual([]);
  });

  it("learns of a fork", () => {
    const fork = checkpoint("f", ["a"], { subject: "state/copy", name: "copy", sequence: 6 });
    const next = changedBy(picture, change({ checkpoints: [fork] }));
    expect(next?.lineages.get("state/demo")?.forks).toEqual([fork]);
  });

  it("knows when it missed something", () => {
    expect(changedBy(picture, change({ since: 7, sequence: 8 }))).toBeNull();
    expect(changedBy(picture, change({ complete: false }))).toBeNull();
    expect(changedBy(EMPTY, change({}))).toBeNull();
    expect(changedBy(picture, change({ since: 3, sequence: 5 }))).toBe(picture);
  });

  it("finds subjects by kind and words", () => {
    const all = [
      summary(checkpoint("x", [], { reason: "before Cleaning" })),
      summary(null, { subject: "session/other", kind: "session", time: "2026-02-01" }),
    ];
    const found = (text: string, kind = "") =>
      matching(all, { text, kind }).map((each) => each.subject);
    expect(found("")).toEqual(["session/other", "state/demo"]);
    expect(found("cleaning demo")).toEqual(["state/demo"]);
    expect(found("demo other")).toEqual([]);
    expect(found("", "session")).toEqual(["session/other"]);
  });
});
