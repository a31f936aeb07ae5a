import { describe, expect, it } from "vitest";
import { SandboxEvent, SandboxState } from "../src/index.js";
import { afterClose, afterStatus, TABLE, TERMINAL } from "../src/states.js";

const states = Object.values(SandboxState);
const statuses = Object.values(SandboxEvent);
const contexts = [false, true].flatMap((leaveRunning) =>
  [false, true].map((executing) => ({ leaveRunning, executing })),
);

const live = states.filter((state) => !TERMINAL.has(state));

/** What is expected, written a second time and in another way: as sentences about each status. */
function expected(
  state: SandboxState,
  status: SandboxEvent,
  context: { leaveRunning: boolean; executing: boolean },
): SandboxState {
  if (TERMINAL.has(state)) return state; // nothing brings one back
  const name = status.replace("SANDBOX_", "");
  const going = context.executing ? "executing" : "running";
  const hopeless = [
    "CREATION_ERROR RESTORE_ERROR NOT_FOUND PERMISSION_DENIAL_ERROR ERROR",
    "LOCK_RENEWAL_ERROR CHECKPOINT_ERROR IN_USE",
  ].join(" ");
  if (name === "IN_USE" && state === "reconnecting") return state;
  if (hopeless.split(" ").includes(name)) return "failed";
  const moves: Record<string, Partial<Record<SandboxState, SandboxState>>> = {
    CREATING: { connecting: "creating" },
    RUNNING: {
      connecting: "running",
      creating: "running",
      restoring: "running",
      reconnecting: "running",
    },
    RESTORING: { connecting: "restoring", reconnecting: "restoring", running: "restoring" },
    EXECUTION_RUNNING: { running: "executing", reconnecting: "executing" },
    EXECUTION_DONE: { executing: "running" },
    EXECUTION_ERROR: { executing: "running" },
    CHECKPOINTING: { running: "checkpointing", executing: "checkpointing" },
    CHECKPOINTED: { checkpointing: context.leaveRunning ? going : "checkpointed" },
    EXECUTION_IN_PROGRESS_ERROR: { checkpointing: going },
    KILLING: { running: "killing", executing: "killing", checkpointing: "killing" },
    KILLED: { killing: "killed", running: "killed", executing: "killed" },
    KILL_ERROR: { killing: going },
    DELETED: {
      running: "deleted",
      executing: "deleted",
      reconnecting: "deleted",
      restoring: "deleted",
    },
  };
  return moves[name]?.[state] ?? state;
}

describe("every status in every state", () => {
  it("has a row for every status", () => {
    expect(Object.keys(TABLE).sort()).toEqual([...statuses].sort());
  });

  for (const status of statuses) {
    it(status, () => {
      for (const state of states) {
        for (const context of contexts) {
          const where = `${status} in ${state} ${JSON.stringify(context)}`;
          expect(afterStatus(state, status, context), where).toBe(expected(state, status, context));
        }
      }
    });
  }

  it("ignores a status that it does not know", () => {
    for (const state of states) {
      expect(
        afterStatus(state, "SANDBOX_OF_THE_FUTURE", { leaveRunning: false, executing: false }),
      ).toBe(state);
    }
  });
});

describe("a connection that broke", () => {
  it("is made again where the sandbox had been running", () => {
    for (const state of ["running", "executing", "reconnecting"] as const) {
      expect(afterClose(state, true)).toBe("reconnecting");
      expect(afterClose(state, false)).toBe("failed");
    }
  });

  it("is the end of what was under way otherwise", () => {
    for (const state of live) {
      if (["running", "executing", "reconnecting"].includes(state)) continue;
      expect(afterClose(state, true), state).toBe("failed");
    }
  });

  it("changes nothing after the end", () => {
    for (const state of TERMINAL) expect(afterClose(state, true)).toBe(state);
  });
});
