import { beforeEach, describe, expect, it } from "vitest";
import {
  CaptureFailed,
  Conflict,
  ConnectionLost,
  Denied,
  HoldfastError,
  NotFound,
  Sandbox,
  UsageError,
} from "../src/index.js";
import { error, PASS, ScriptedServer, settle } from "./server.js";

let server: ScriptedServer;

beforeEach(() => {
  server = new ScriptedServer();
});

async function created(options = {}): Promise<Sandbox> {
  const made = Sandbox.create("http://host:1", {
    enableCheckpoint: true,
    token: "let-me-in",
    socket: server.factory,
    ...options,
  });
  await settle();
  server.say("CREATING", PASS, "RUNNING");
  return made;
}

describe("creating a sandbox with checkpoints", () => {
  it("asks for them in the first frame", async () => {
    const sandbox = await created();
    expect(server.frames).toEqual([{ enable_checkpoint: true }]);
    expect(sandbox.state).toBe("running");
    expect([sandbox.sandboxId, sandbox.sandboxToken]).toEqual(["sb1", "secret"]);
  });

  it("knows the older name of the option", async () => {
    await created({ enableCheckpoint: false, enableSandboxCheckpoint: true });
    expect(server.frames[0]).toEqual({ enable_checkpoint: true });
  });

  it("sends only what was asked for", async () => {
    await created({ enableCheckpoint: undefined });
    expect(server.frames).toEqual([{}]);
  });
});

describe("checkpointing", () => {
  it("resolves when it is durable, and then the sandbox is of no more use", async () => {
    const sandbox = await created();
    const done = sandbox.checkpoint({ reason: "before lunch" });
    expect(server.last).toEqual({ action: "checkpoint", reason: "before lunch" });
    server.say("CHECKPOINTING");
    expect(sandbox.state).toBe("checkpointing");
    const told = { id: "0199", short: "ab12", subject: "sandbox/sb1", size_bytes: 9 };
    server.say({ event: "checkpoint", ...told, stored_bytes: 5, pause_ms: 1.5 });
    server.say("DELETING", "DELETED", "CHECKPOINTED");
    expect(await done).toMatchObject({ id: "0199", sizeBytes: 9, storedBytes: 5, pauseMs: 1.5 });
    expect(sandbox.state).toBe("checkpointed");
    server.hangUp(1000);
    expect(sandbox.state).toBe("checkpointed");

    const calls = [
      () => sandbox.exec("bash", "true"),
      () => sandbox.checkpoint(),
      () => sandbox.fork(),
      () => sandbox.rollback(),
      () => sandbox.snapshotFilesystem("x"),
      () => sandbox.files.read("/x"),
      () => sandbox.kill(),
    ];
    for (const call of calls) {
      await expect(call()).rejects.toThrow(UsageError);
      await expect(call()).rejects.toMatchObject({ hint: "Sandbox.attach brings it back" });
    }
    expect(server.sockets).toHaveLength(1); // nobody reconnects
  });

  it("leaves the sandbox running when asked", async () => {
    const sandbox = await created();
    const done = sandbox.checkpoint({ leaveRunning: true });
    expect(server.last).toMatchObject({ leave_running: true });
    server.say("CHECKPOINTING", "CHECKPOINTED");
    await done;
    expect(sandbox.state).toBe("running");
    const next = sandbox.checkpoint();
    server.say("CHECKPOINTING", "DELETING", "DELETED", "CHECKPOINTED");
    await next;
    expect(sandbox.state).toBe("checkpointed");
  });

  it("is refused during an execution, which goes on", async () => {
    const sandbox = await created();
    const starting = sandbox.exec("bash", "sleep 1");
    server.say("EXECUTION_RUNNING");
    const process = await starting;
    const done = sandbox.checkpoint();
    server.say("CHECKPOINTING", "EXECUTION_IN_PROGRESS_ERROR");
    server.say(error("wait for it", { kind: "conflict", hint: "or kill it" }));
    await expect(done).rejects.toThrow(Conflict);
    await expect(done).rejects.toMatchObject({ message: "wait for it", hint: "or kill it" });
    expect(sandbox.state).toBe("executing");
    server.say({ event: "stdout", data: "still here" }, "EXECUTION_DONE");
    expect(await process.stdout.readAll()).toBe("still here");
    expect(sandbox.state).toBe("running");
  });

  it("tells why it failed, and that the sandbox is still there", async () => {
    const sandbox = await created();
    const done = sandbox.checkpoint();
    server.say(
      "CHECKPOINTING",
      "CHECKPOINT_ERROR",
      error("the disk is full", { kind: "storage_full" }),
    );
    server.hangUp(4000);
    await expect(done).rejects.toMatchObject({ kind: "storage_full", message: "the disk is full" });
    expect(sandbox.state).toBe("failed");
    await expect(sandbox.exec("bash", "true")).rejects.toThrow("the disk is full");
    expect(server.sockets).toHaveLength(1);
  });

  it("fails with the status alone when no words follow", async () => {
    const sandbox = await created();
    const done = sandbox.checkpoint();
    server.say("CHECKPOINTING", "CHECKPOINT_ERROR");
    server.hangUp(4000);
    await expect(done).rejects.toThrow(CaptureFailed);
    await expect(done).rejects.toMatchObject({ hint: expect.stringContaining("Sandbox.attach") });
  });

  it("fails when the connection breaks in the middle", async () => {
    const sandbox = await created();
    const done = sandbox.checkpoint();
    server.say("CHECKPOINTING");
    server.hangUp();
    await expect(done).rejects.toThrow(ConnectionLost);
  });

  it("is one at a time", async () => {
    const sandbox = await created();
    const first = sandbox.checkpoint({ leaveRunning: true });
    await expect(sandbox.checkpoint()).rejects.toThrow(Conflict);
    server.say("CHECKPOINTING", "CHECKPOINTED");
    await first;
  });

  it("may come from the server, which hands the sandbox over or found it idle", async () => {
    const sandbox = await created();
    server.say("LOCK_RELEASE_REQUESTED", "CHECKPOINTING", "DELETING", "LOCK_RELEASING");
    server.say("LOCK_RELEASED", "DELETED", "CHECKPOINTED");
    expect(sandbox.state).toBe("checkpointed");
  });
});

describe("attaching", () => {
  async function attached(...frames: Parameters<ScriptedServer["say"]>): Promise<Sandbox> {
    const made = Sandbox.attach("https://host/base/", "a/b", "secret", {
      token: "let-me-in",
      socket: server.factory,
    });
    await settle();
    server.say(...frames);
    return made;
  }

  it("keeps both tokens out of the URL", async () => {
    const sandbox = await attached("RUNNING");
    expect(sandbox.state).toBe("running");
    expect(server.socket.url).toBe("wss://host/base/attach/a%2Fb");
    expect(server.socket.options).toEqual({
      headers: {
        authorization: "Bearer let-me-in",
        "x-request-id": expect.stringMatching(/^[\w-]{36}$/),
      },
      protocols: ["holdfast.v1", "holdfast.sandbox.secret"],
    });
    expect(server.frames).toEqual([]);
  });

  it("waits while the sandbox is restored", async () => {
    const sandbox = await attached("RESTORING", "LOCK_ACQUIRING", "LOCK_ACQUIRED", "RUNNING");
    expect(sandbox.state).toBe("running");
  });

  it("goes on with what was running when it was frozen", async () => {
    const sandbox = await attached("RESTORING", "RUNNING", "EXECUTION_RUNNING");
    const process = sandbox.execution;
    expect(sandbox.state).toBe("executing");
    server.say({ event: "stdout", data: "4 5 6" }, { event: "exit", code: 0 }, "EXECUTION_DONE");
    expect(await process?.stdout.readAll()).toBe("4 5 6");
    expect((await process?.wait())?.code).toBe(0);
  });

  it("remembers the tokens of a sandbox that it made", async () => {
    await created();
    const again = Sandbox.attach("http://host:1", "sb1", undefined, { socket: server.factory });
    await settle();
    server.say("RUNNING");
    expect((await again).sandboxToken).toBe("secret");
    expect(server.socket.options.headers.authorization).toBe("Bearer let-me-in");
    await expect(Sandbox.attach("http://host:1", "unknown")).rejects.toMatchObject({
      kind: "bad_input",
    });
  });

  const failures = [
    ["NOT_FOUND", 1011, NotFound, []],
    ["IN_USE", 1011, Conflict, []],
    ["PERMISSION_DENIAL_ERROR", 4000, Denied, [error("wrong token")]],
    ["RESTORE_ERROR", 4000, HoldfastError, [error("another CPU", { kind: "unsupported" })]],
    ["ERROR", 4000, HoldfastError, [error("oh no")]],
  ] as const;
  for (const [status, code, kind, more] of failures) {
    it(`rejects on ${status}`, async () => {
      const failing = attached(status, ...more);
      await settle();
      server.hangUp(code);
      await expect(failing).rejects.toThrow(kind);
      if (more[0] !== undefined) await expect(failing).rejects.toThrow(String(more[0].message));
      expect(server.sockets).toHaveLength(1);
    });
  }

  it("ends in a close in every case", async () => {
    const failing = attached("RESTORING");
    await settle();
    server.hangUp(1011, "gone");
    await expect(failing).rejects.toThrow(/hung up while it was restoring \(1011\): gone/);
  });
});
