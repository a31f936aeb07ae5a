/** Whatever a server says, in whatever order: nothing is thrown, and nobody waits for ever. */

import { afterEach, beforeEach, expect, it, vi } from "vitest";
import { EventType, Sandbox, SandboxEvent, SandboxState } from "../src/index.js";
import { TERMINAL } from "../src/states.js";
import { ScriptedServer, settle } from "./server.js";

const unhandled: unknown[] = [];
const note = (reason: unknown) => unhandled.push(reason);

beforeEach(() => {
  vi.useFakeTimers();
  process.on("unhandledRejection", note);
});

afterEach(() => {
  vi.useRealTimers();
  process.off("unhandledRejection", note);
});

/** Numbers that are the same in every run (mulberry32). */
function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

const ODD = [null, 0, -1, 1e300, "", "x", "\ud800", [], {}, true, "base64", "AA==", "A==="];
const FIELDS = ["request_id", "process_id", "data", "encoding", "offset", "gap", "code", "signal"];
const MORE = ["kind", "message", "hint", "sandboxes", "entries", "status", "id", "sandbox_id"];

it.each([1, 2, 3, 4])("survives anything (%i)", async (seed) => {
  const random = chance(seed);
  const pick = <T>(from: readonly T[]): T => from[Math.floor(random() * from.length)] as T;
  /** Something that a server might say, often about what was asked for last. */
  const frame = (asked: Record<string, unknown>): unknown => {
    if (random() < 0.5) {
      return { event: "status_update", status: pick(Object.values(SandboxEvent)), message: "m" };
    }
    const made: Record<string, unknown> = { event: pick([...Object.values(EventType), "new", 7]) };
    for (const field of [...FIELDS, ...MORE]) if (random() < 0.3) made[field] = pick(ODD);
    for (const field of ["request_id", "process_id"]) {
      if (field in asked && random() < 0.5) made[field] = asked[field];
    }
    return random() < 0.05 ? pick(ODD) : made;
  };

  for (let round = 0; round < 150; round += 1) {
    const server = new ScriptedServer();
    const waiting = new Set<string>();
    const creating = Sandbox.create("ws://host", { socket: server.factory });
    await settle();
    server.say("CREATING", { event: "sandbox_id", sandbox_id: "s", sandbox_token: "t" }, "RUNNING");
    const sandbox = await creating;
    for (let step = 0; step < 40; step += 1) {
      const before = sandbox.state;
      const luck = random();
      if (luck < 0.25) ask(sandbox, pick, waiting);
      else if (luck < 0.3) server.hangUp();
      else if (luck < 0.35) await vi.advanceTimersByTimeAsync(3_000);
      else
        server.raw(
          random() < 0.02 ? pick(["", "{", "\u0000", 7]) : JSON.stringify(frame(server.last)),
        );
      expect(Object.values(SandboxState)).toContain(sandbox.state);
      if (TERMINAL.has(before)) expect(sandbox.state).toBe(before);
    }
    sandbox.detach();
    await vi.advanceTimersByTimeAsync(10_000);
    expect([...waiting]).toEqual([]);
    expect(TERMINAL.has(sandbox.state)).toBe(true);
  }
  await settle();
  expect(unhandled).toEqual([]);
});

/** Ask for something that a program may ask for at any time; it is in `waiting` until it is over. */
function ask(sandbox: Sandbox, pick: <T>(from: readonly T[]) => T, waiting: Set<string>): void {
  const things: Record<string, () => Promise<unknown>> = {
    exec: async () => {
      const made = await sandbox.exec("bash", "x");
      await Promise.allSettled([made.wait(), made.kill(), made.stdout.readAll()]);
    },
    beside: async () => {
      const made = await sandbox.exec(["x"], { background: true });
      await made.stdout.readBytes();
    },
    checkpoint: () => sandbox.checkpoint({ leaveRunning: pick([true, false]) }),
    rollback: () => sandbox.rollback(),
    snapshot: () => sandbox.snapshotFilesystem("base"),
    list: () => sandbox.files.list("/"),
    read: () => sandbox.files.read("/x"),
    kill: () => sandbox.kill({ timeout: 1_000 }),
  };
  const name = pick(Object.keys(things));
  const mark = `${name} ${waiting.size}`;
  waiting.add(mark);
  const over = () => waiting.delete(mark);
  things[name]?.().then(over, over);
}
