import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { delayBefore, socketUrl } from "../src/connection.js";
import {
  BadInput,
  Conflict,
  ConnectionLost,
  LeaseLost,
  Sandbox,
  SandboxEvent,
  type SandboxProcess,
  TimedOut,
  Unsupported,
  UsageError,
} from "../src/index.js";
import { credentials } from "../src/socket.js";
import { error, PASS, ScriptedServer, settle, status } from "./server.js";

let server: ScriptedServer;
let sandbox: Sandbox;
const statuses: string[] = [];

let making: AbortController;

beforeEach(async () => {
  making = new AbortController();
  server = new ScriptedServer();
  statuses.length = 0;
  const made = Sandbox.create("http://host:1", {
    token: "t",
    socket: server.factory,
    signal: making.signal,
    onStatus: (name, message) => statuses.push(`${name}: ${message}`),
  });
  await settle();
  server.say("CREATING", PASS, status("RUNNING", "here you are"));
  sandbox = await made;
});

afterEach(() => {
  sandbox.detach();
  vi.useRealTimers();
});

async function running(...args: [string, string]): Promise<SandboxProcess> {
  const starting = sandbox.exec(...args);
  server.say("EXECUTION_RUNNING");
  return starting;
}

function pick(from: Record<string, unknown>, ...names: string[]): Record<string, unknown> {
  return Object.fromEntries(names.map((name) => [name, from[name]]));
}

describe("creating", () => {
  it("tells the statuses", () => {
    expect(statuses).toEqual(["SANDBOX_CREATING: ", "SANDBOX_RUNNING: here you are"]);
    expect(server.socket.url).toBe("ws://host:1/create");
  });

  it("sends every option that was given", async () => {
    const made = Sandbox.create("ws://host", {
      socket: server.factory,
      idleTimeout: 60,
      enableIdleTimeoutAutoCheckpoint: true,
      enableSandboxHandoff: true,
      filesystemSnapshotName: "base",
      engine: "gvisor",
      name: "mine",
      image: "python",
      limits: { cpus: 2 },
      network: true,
    });
    await settle();
    server.say("CREATING", "LOCK_ACQUIRING", "LOCK_ACQUIRED", PASS, "RUNNING");
    await made;
    expect(server.frames[0]).toEqual({
      idle_timeout: 60,
      enable_idle_timeout_auto_checkpoint: true,
      enable_sandbox_handoff: true,
      filesystem_snapshot_name: "base",
      engine: "gvisor",
      name: "mine",
      image: "python",
      limits: { cpus: 2 },
      network: true,
    });
  });

  it("rejects with the server's words", async () => {
    const made = Sandbox.create("ws://host", { socket: server.factory });
    await settle();
    server.say("CREATING", "CREATION_ERROR", error("no room", { kind: "conflict", hint: "later" }));
    server.hangUp(4000);
    await expect(made).rejects.toMatchObject({
      message: "no room",
      kind: "conflict",
      hint: "later",
    });
  });

  it("rejects when the server is not there, or is no server", async () => {
    server.refuses = true;
    const options = { socket: server.factory };
    await expect(Sandbox.create("ws://host", options)).rejects.toThrow(ConnectionLost);
    await expect(Sandbox.create("ftp://host", options)).rejects.toThrow(BadInput);
    await expect(Sandbox.create("nowhere", options)).rejects.toThrow(BadInput);
  });

  it("stops waiting after a time, or when told to", async () => {
    const options = { socket: server.factory };
    await expect(Sandbox.create("ws://host", { ...options, timeout: 20 })).rejects.toThrow(
      TimedOut,
    );
    expect(server.socket.closedWith).toBe(1000);
    const aborter = new AbortController();
    const made = Sandbox.create("ws://host", { ...options, signal: aborter.signal });
    await settle();
    aborter.abort();
    await expect(made).rejects.toThrow("aborted");
    const late = { ...options, signal: AbortSignal.abort() };
    await expect(Sandbox.create("ws://host", late)).rejects.toThrow();
  });
});

describe("executing", () => {
  it("gives output as it comes, and the exit", async () => {
    const process = await running("python", "print(1)");
    expect(server.last).toEqual({ language: "python", code: "print(1)" });
    expect(sandbox.state).toBe("executing");
    const seen: string[] = [];
    const reading = (async () => {
      for await (const piece of process.stdout) seen.push(piece);
    })();
    server.say({ event: "stdout", data: "1\n" }, { event: "stderr", data: "oops" });
    server.say({ event: "stdout", data: "2\n" }, { event: "exit", code: 3 }, "EXECUTION_DONE");
    expect(await process.wait()).toEqual({ code: 3, signal: null, reason: null });
    await reading;
    expect(seen).toEqual(["1\n", "2\n"]);
    expect(await process.stderr.readAll()).toBe("oops");
    expect(sandbox.state).toBe("running");
    expect(() => process.writeToStdin("late")).toThrow(UsageError);
    await process.kill();
  });

  it("takes argv, environment, folder, terminal and bytes", async () => {
    const starting = sandbox.exec(["ls", "-l"], {
      env: { A: "b" },
      cwd: "/tmp",
      pty: { rows: 40, columns: 100 },
      session: true,
      stdin: false,
      binary: true,
    });
    expect(server.last).toEqual({
      argv: ["ls", "-l"],
      env: { A: "b" },
      cwd: "/tmp",
      pty: true,
      rows: 40,
      columns: 100,
      session: true,
      stdin: false,
      encoding: "base64",
    });
    server.say("EXECUTION_RUNNING", { event: "stdout", data: "/wA=", encoding: "base64" });
    server.say("EXECUTION_DONE");
    const process = await starting;
    expect([...(await process.stdout.readBytes())]).toEqual([0xff, 0x00]);
    expect(await process.wait()).toEqual({ code: null, signal: null, reason: null });
  });

  it("joins a character that was split between two pieces", async () => {
    const process = await running("bash", "x");
    const half = (data: string) => ({ event: "stdout", data, encoding: "base64" });
    server.say(half("w6Q="), half("4oI="), half("rA=="), "EXECUTION_DONE");
    expect(await process.stdout.readAll()).toBe("ä€");
  });

  it("gives what came before it broke, then the error", async () => {
    const process = await running("bash", "x");
    server.say({ event: "stdout", data: "before" }, "EXECUTION_ERROR", error("it broke"));
    const seen: string[] = [];
    const reading = (async () => {
      for await (const piece of process.stdout) seen.push(piece);
    })();
    await expect(reading).rejects.toThrow("it broke");
    expect(seen).toEqual(["before"]);
    await expect(process.stderr.readBytes()).rejects.toThrow("it broke");
    await expect(process.wait()).rejects.toThrow("it broke");
  });

  it("has one reader at a time", async () => {
    const process = await running("bash", "x");
    const first = process.stdout.readBytes();
    await expect(process.stdout.readAll()).rejects.toThrow(TypeError);
    expect(process.stdout.locked).toBe(true);
    server.say({ event: "stdout", data: "all" }, "EXECUTION_DONE");
    expect(new TextDecoder().decode(await first)).toBe("all");
    expect(await process.stdout.readAll()).toBe("");
  });

  it("is not read for longer than somebody wants to wait", async () => {
    const process = await running("bash", "x");
    server.say({ event: "stdout", data: "some" });
    await expect(process.stdout.readAll({ timeout: 10 })).rejects.toThrow(TimedOut);
    const signal = AbortSignal.abort();
    await expect(process.stderr.readBytes({ signal })).rejects.toThrow("abort");
    expect(process.stdout.locked).toBe(false);
    server.say({ event: "stdout", data: "more" }, { event: "exit", code: 0 }, "EXECUTION_DONE");
    expect((await process.wait()).code).toBe(0);
    expect(await process.stdout.readAll()).toBe("");
  });

  it("gives a web stream", async () => {
    const process = await running("bash", "x");
    expect(process.stdout).toBeInstanceOf(ReadableStream);
    server.say({ event: "stdout", data: "a" }, { event: "stdout", data: "b" }, "EXECUTION_DONE");
    expect(await new Response(process.stdout.pipeThrough(new TextEncoderStream())).text()).toBe(
      "ab",
    );
  });

  it("discards the rest when a reader leaves early", async () => {
    const process = await running("bash", "yes");
    server.say({ event: "stdout", data: "y" });
    for await (const piece of process.stdout) {
      expect(piece).toBe("y");
      break;
    }
    server.say({ event: "stdout", data: "y" }, "EXECUTION_DONE");
    await process.wait();
  });

  it("writes to stdin", async () => {
    const process = await running("bash", "cat");
    process.writeToStdin("hello");
    expect(server.last).toEqual({ event: "stdin", data: "hello" });
    process.writeToStdin(new Uint8Array([255]));
    expect(server.last).toEqual({ event: "stdin", data: "/w==", encoding: "base64" });
    process.closeStdin();
    expect(server.last).toEqual({ event: "stdin", eof: true });
    process.resize(1, 2);
    expect(server.last).toEqual({ action: "resize", rows: 1, columns: 2 });
    server.say("STDIN_ERROR", error("no input")); // told to nobody in particular; it goes on
    expect(sandbox.state).toBe("executing");
  });

  it("rejects a language that the server does not know", async () => {
    const starting = sandbox.exec("cobol", "x");
    server.say("EXECUTION_UNSUPPORTED_LANGUAGE_ERROR", error("cobol?"));
    await expect(starting).rejects.toThrow(Unsupported);
    const next = running("bash", "true");
    await next;
  });

  it("rejects what could not run, and fails what broke", async () => {
    const starting = sandbox.exec("bash", "x");
    server.say("EXECUTION_ERROR", error("no", { kind: "bad_input" }));
    await expect(starting).rejects.toThrow(BadInput);
    const process = await running("bash", "y");
    server.say("EXECUTION_ERROR", error("the engine lost it"));
    await expect(process.wait()).rejects.toThrow("the engine lost it");
    await expect(process.stdout.readAll()).rejects.toThrow("the engine lost it");
    expect(sandbox.state).toBe("running");
  });

  it("is one in the foreground, and any number beside it", async () => {
    const front = await running("bash", "front");
    await expect(sandbox.exec("bash", "second")).rejects.toThrow(Conflict);
    const starting = sandbox.exec("bash", "beside", { background: true });
    const { process_id, request_id } = server.last;
    server.say({ event: "started", process_id, request_id });
    const beside = await starting;
    server.say({ event: "stdout", data: "B", process_id }, { event: "stdout", data: "F" });
    server.say(
      { event: "exit", code: 1, process_id },
      { event: "exit", code: 0 },
      "EXECUTION_DONE",
    );
    expect(await beside.stdout.readAll()).toBe("B");
    expect(await front.stdout.readAll()).toBe("F");
    expect((await beside.wait()).code).toBe(1);
    expect((await front.wait()).code).toBe(0);
  });

  it("rejects one in the background that cannot be started", async () => {
    const starting = sandbox.exec(["nothing"], { background: true });
    const { process_id, request_id } = server.last;
    server.say(error("no such program", { kind: "not_found", process_id, request_id }));
    await expect(starting).rejects.toMatchObject({ kind: "not_found" });
  });

  it("is killed: forced, then done", async () => {
    const process = await running("bash", "sleep 9");
    const killed = process.kill();
    expect(server.last).toEqual({ action: "kill_process" });
    server.say("EXECUTION_FORCE_KILLED");
    await killed;
    server.say({ event: "exit", signal: 9 }, "EXECUTION_DONE");
    expect(await process.wait()).toMatchObject({ signal: 9 });
  });

  it("is killed beside: it ends, or the server says why not", async () => {
    const starting = sandbox.exec(["x"], { background: true });
    const { process_id, request_id } = server.last;
    server.say({ event: "started", process_id, request_id });
    const process = await starting;
    const refused = process.kill();
    expect(server.last).toMatchObject({ action: "kill_process", process_id });
    const again = server.last.request_id;
    server.say(error("it clings to life", { kind: "conflict", request_id: again }));
    await expect(refused).rejects.toMatchObject({ kind: "conflict", message: "it clings to life" });
    expect(process.exit).toBeUndefined();
    const late = process.kill();
    server.say(error("no such", { kind: "not_found", request_id: server.last.request_id }));
    await late; // it is gone, whoever did it
    const killed = process.kill();
    server.say({ event: "exit", signal: 9, process_id });
    await killed;
    expect(process.exit).toMatchObject({ signal: 9 });
  });

  it("tells when it cannot be killed", async () => {
    const process = await running("bash", "sleep 9");
    const killed = process.kill();
    server.say(status("EXECUTION_FORCE_KILL_ERROR", "it will not die"));
    server.say({ event: "stdout", data: "" });
    await expect(killed).rejects.toThrow("it will not die");
  });
});

describe("verbs with answers", () => {
  it("forks", async () => {
    making.abort(); // too late for this one, and nothing to its copies
    const forking = sandbox.fork({ count: 2 });
    expect(server.last).toMatchObject({ action: "fork", count: 2 });
    const pass = (id: string) => ({ sandbox_id: id, sandbox_token: `${id}-token` });
    server.say({
      event: "fork",
      sandboxes: [pass("f1"), pass("f2")],
      request_id: server.last.request_id,
    });
    await settle();
    for (const socket of server.sockets.slice(1)) {
      socket.onmessage?.({ data: JSON.stringify(status("RUNNING")) });
    }
    const forks = await forking;
    expect(forks.map((each) => each.sandboxId)).toEqual(["f1", "f2"]);
    expect(forks.map((each) => each.state)).toEqual(["running", "running"]);
  });

  it("gives up on copies when the caller does", async () => {
    const given = new AbortController();
    const forking = sandbox.fork({ signal: given.signal });
    server.say({
      event: "fork",
      sandboxes: [{ sandbox_id: "f1", sandbox_token: "x" }],
      request_id: server.last.request_id,
    });
    await settle();
    given.abort();
    await expect(forking).rejects.toThrow("abort");
  });

  it("rolls back and snapshots", async () => {
    const back = sandbox.rollback({ to: "ab12" });
    expect(server.last).toMatchObject({ action: "rollback", checkpoint: "ab12" });
    server.say({ event: "rollback", checkpoint: "cd34", request_id: server.last.request_id });
    expect(await back).toBe("cd34");

    const kept = sandbox.snapshotFilesystem("base");
    expect(server.last).toEqual({ action: "snapshot_filesystem", name: "base" });
    server.say("FILESYSTEM_SNAPSHOT_CREATING", "FILESYSTEM_SNAPSHOT_CREATED");
    await kept;
    const failed = sandbox.snapshotFilesystem("../x");
    server.say("FILESYSTEM_SNAPSHOT_ERROR", error("no name", { kind: "bad_input" }));
    await expect(failed).rejects.toThrow(BadInput);
  });

  it("has files", async () => {
    const answer = (more: object) =>
      server.say({
        event: "files",
        verb: "x",
        path: "/x",
        request_id: server.last.request_id,
        ...more,
      });
    const reading = sandbox.files.readText("/x");
    expect(server.last).toMatchObject({ action: "files", verb: "read", path: "/x" });
    answer({ data: "w6Q=", encoding: "base64" });
    expect(await reading).toBe("ä");
    const writing = sandbox.files.write("/x", new Uint8Array([1]));
    expect(server.last).toMatchObject({ verb: "write", data: "AQ==", encoding: "base64" });
    answer({});
    await writing;
    const listing = sandbox.files.list("/");
    answer({ entries: [{ name: "x", kind: "file", size: 1, mode: 420, modified: 0 }] });
    expect((await listing).map((entry) => entry.name)).toEqual(["x"]);
    const removing = sandbox.files.remove("/gone");
    server.say(error("not there", { kind: "not_found", request_id: server.last.request_id }));
    await expect(removing).rejects.toMatchObject({ kind: "not_found" });
    const making = sandbox.files.mkdir("/d", { timeout: 10 });
    await expect(making).rejects.toThrow(TimedOut);
  });

  it("notices a file that changes while it is read, and leaves no part of one behind", async () => {
    const answer = async (more: object) => {
      server.say({
        event: "files",
        verb: "x",
        path: "/x",
        ...pick(server.last, "request_id"),
        ...more,
      });
      await settle();
    };
    const reading = expect(sandbox.files.read("/x")).rejects.toThrow(Conflict);
    await answer({ data: "AQ==", encoding: "base64", size: 2, modified: 1 });
    expect(server.last).toMatchObject({ verb: "read", offset: 1 });
    await answer({ data: "AQ==", encoding: "base64", size: 2, modified: 2 });
    await reading;

    const writing = expect(sandbox.files.write("/x", new Uint8Array(5 << 20))).rejects.toThrow(
      "no room",
    );
    const { path } = server.last;
    expect(path).toMatch(/^\/x\.holdfast-part-/);
    await answer({});
    expect(server.last).toMatchObject({ verb: "write", path, offset: 4 << 20 });
    server.say(error("no room", { kind: "bad_input", request_id: server.last.request_id }));
    await settle();
    expect(server.last).toMatchObject({ verb: "remove", path });
    await answer({});
    await writing;
  });
});

describe("the end", () => {
  it("is killed", async () => {
    const killed = sandbox.kill();
    expect(server.last).toEqual({ action: "kill_sandbox" });
    server.say("KILLING", "DELETING", "DELETED", "KILLED");
    await killed;
    expect(sandbox.state).toBe("killed");
    await expect(sandbox.exec("bash", "x")).rejects.toThrow("the sandbox is killed");
  });

  it("is told when it could not be killed", async () => {
    const killed = sandbox.kill();
    server.say("KILLING", status("KILL_ERROR", "stuck"), { event: "stdout", data: "" });
    await expect(killed).rejects.toThrow("stuck");
    expect(sandbox.state).toBe("running");
  });

  it("is told in words why it could not be killed", async () => {
    const killed = sandbox.kill();
    server.say("KILLING", status("KILL_ERROR", "stuck"));
    server.say(error("no space left", { kind: "storage_full", hint: "make room" }));
    await expect(killed).rejects.toMatchObject({
      kind: "storage_full",
      message: "no space left",
      hint: "make room",
    });
    expect(sandbox.state).toBe("running");
  });

  it("is left alone by await using", async () => {
    {
      await using leaving = sandbox;
      expect(leaving.state).toBe("running");
    }
    expect(sandbox.state).toBe("detached");
    expect(server.socket.closedWith).toBe(1000);
    await expect(sandbox.exec("bash", "x")).rejects.toThrow(UsageError);
  });

  it("comes when it was idle for too long, and ends what waits", async () => {
    const process = await running("bash", "sleep");
    server.say("DELETING", "DELETED");
    expect(sandbox.state).toBe("deleted");
    await expect(process.wait()).rejects.toThrow("the sandbox is deleted");
  });

  it("comes when the server lost its right to it", async () => {
    const reading = sandbox.files.read("/x");
    server.say(status("LOCK_RENEWAL_ERROR", "another server has it"), "DELETING", "DELETED");
    server.hangUp(1000);
    await expect(reading).rejects.toThrow(LeaseLost);
    expect(server.sockets).toHaveLength(1);
  });
});

describe("a broken connection", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });

  it("leaves nobody waiting for an answer that will not come", async () => {
    const asked = [
      sandbox.files.read("/x"),
      sandbox.exec("bash", "x"),
      sandbox.exec(["x"], { background: true }),
      sandbox.snapshotFilesystem("base"),
    ].map((each) => expect(each).rejects.toThrow("before the answer came"));
    server.hangUp();
    await Promise.all(asked);
    await vi.advanceTimersByTimeAsync(100);
    server.say("RUNNING", "EXECUTION_RUNNING"); // it had been started
    expect(sandbox.execution).toBeDefined();
    expect(sandbox.state).toBe("executing");
  });

  it("comes back by itself and goes on behind what was seen", async () => {
    const process = await running("bash", "count");
    server.cookie = "node=a; Path=/";
    server.say({ event: "stdout", data: "12", offset: 2 });
    server.hangUp();
    expect(sandbox.state).toBe("reconnecting");
    expect(() => process.writeToStdin("x")).toThrow(ConnectionLost);
    await vi.advanceTimersByTimeAsync(200);
    expect(server.socket.url).toBe("ws://host:1/attach/sb1");
    expect(server.frames).toEqual([{ action: "reconnect", offset: 2 }]);
    server.say("RUNNING", "EXECUTION_RUNNING");
    server.say({ event: "stdout", data: "45", offset: 5, gap: 1 }, "EXECUTION_DONE");
    expect(await process.stdout.readAll()).toBe("1245");
    expect(process.lost).toBe(1);
    await process.wait();
    server.hangUp();
    await vi.advanceTimersByTimeAsync(200);
    expect(server.socket.options.headers.cookie).toBe("node=a");
    expect(server.frames).toEqual([{ action: "reconnect" }]);
  });

  it("holds back what is asked for meanwhile until it is back", async () => {
    server.hangUp();
    const making = sandbox.files.mkdir("/d");
    const impatient = expect(sandbox.files.mkdir("/e", { timeout: 10 })).rejects.toThrow(TimedOut);
    await vi.advanceTimersByTimeAsync(200);
    await impatient;
    server.say("IN_USE");
    server.hangUp(1011); // the server thinks that we are still there: once more
    await vi.advanceTimersByTimeAsync(500);
    expect(server.frames).toEqual([{ action: "reconnect" }]);
    server.say("RUNNING");
    await settle();
    expect(server.last).toMatchObject({ action: "files", verb: "mkdir", path: "/d" });
    server.say({ event: "files", verb: "mkdir", path: "/d", ...pick(server.last, "request_id") });
    await making;
  });

  it("leaves nobody waiting when it does not come back", async () => {
    server.refuses = true;
    server.hangUp();
    const making = expect(sandbox.files.mkdir("/d")).rejects.toThrow("could not be made again");
    await vi.advanceTimersByTimeAsync(100_000);
    await making;
  });

  it("goes on with processes beside, and ends those that the server knows no more", async () => {
    const begin = async () => {
      const beginning = sandbox.exec(["x"], { background: true });
      server.say({ event: "started", ...pick(server.last, "request_id", "process_id") });
      return beginning;
    };
    const [kept, gone] = [await begin(), await begin()];
    server.say({ event: "stdout", data: "12", offset: 2, process_id: kept.id });
    server.hangUp();
    await vi.advanceTimersByTimeAsync(200);
    expect(server.last).toEqual({
      action: "reconnect",
      offsets: { [kept.id ?? ""]: 2, [gone.id ?? ""]: 0 },
    });
    server.say("RUNNING", { event: "started", process_id: kept.id });
    const lost = expect(gone.wait()).rejects.toThrow("ended while the connection was broken");
    await vi.advanceTimersByTimeAsync(3_000);
    await lost;
    server.say({ event: "stdout", data: "3", offset: 3, process_id: kept.id });
    server.say({ event: "exit", code: 0, process_id: kept.id });
    expect(await kept.stdout.readAll()).toBe("123");
    expect((await kept.wait()).code).toBe(0);
  });

  it("waits longer each time, and tries again while the server thinks we are still there", async () => {
    server.refuses = true;
    server.hangUp();
    await vi.advanceTimersByTimeAsync(1_000);
    const tries = server.sockets.length;
    expect(tries).toBeGreaterThan(2);
    server.refuses = false;
    await vi.advanceTimersByTimeAsync(5_000);
    server.say("IN_USE");
    server.hangUp(1011);
    expect(sandbox.state).toBe("reconnecting");
    await vi.advanceTimersByTimeAsync(5_000);
    server.say("RUNNING");
    expect(sandbox.state).toBe("running");
  });

  it("ends the process that the server knows no more", async () => {
    const process = await running("bash", "x");
    const waited = expect(process.wait()).rejects.toThrow("ended while the connection was broken");
    server.hangUp();
    await vi.advanceTimersByTimeAsync(200);
    server.say("RUNNING");
    await vi.advanceTimersByTimeAsync(3_000);
    await waited;
    expect(sandbox.state).toBe("running");
  });

  it("gives up in the end", async () => {
    server.refuses = true;
    const process = await running("bash", "x");
    const waited = expect(process.wait()).rejects.toThrow("could not be made again");
    server.hangUp();
    await vi.advanceTimersByTimeAsync(120_000);
    await waited;
    expect(sandbox.state).toBe("failed");
  });

  it("ends when the sandbox is gone", async () => {
    server.hangUp();
    await vi.advanceTimersByTimeAsync(200);
    server.say("NOT_FOUND");
    server.hangUp(1011);
    expect(sandbox.state).toBe("failed");
    await expect(sandbox.exec("bash", "x")).rejects.toMatchObject({ kind: "not_found" });
  });

  it("stays broken when nobody wants it back", async () => {
    const made = Sandbox.create("ws://host", {
      socket: server.factory,
      enableAutoReconnect: false,
    });
    await vi.advanceTimersByTimeAsync(1);
    server.say("CREATING", PASS, "RUNNING");
    const other = await made;
    const before = server.sockets.length;
    server.hangUp();
    expect(other.state).toBe("failed");
    await vi.advanceTimersByTimeAsync(10_000);
    expect(server.sockets).toHaveLength(before);
  });
});

describe("what no server should send", () => {
  it("does no harm", async () => {
    for (const data of [
      "",
      "{",
      "null",
      "[]",
      "7",
      '{"event":"new"}',
      '{"event":"stdout"}',
      new ArrayBuffer(1),
    ]) {
      server.raw(data);
    }
    server.say("OF_THE_FUTURE", { event: "exit", process_id: "nobody" }, error("about nothing"));
    server.say({ event: "files", request_id: "r99", verb: "x", path: "x" }, "EXECUTION_DONE");
    expect(sandbox.state).toBe("running");
    const process = await running("bash", "x");
    expect(process.exit).toBeUndefined();
  });
});

describe("small things", () => {
  it("backs off with jitter", () => {
    expect(delayBefore(0, () => 1)).toBe(100);
    expect(delayBefore(3, () => 1)).toBe(800);
    expect(delayBefore(30, () => 1)).toBe(5_000);
    expect(delayBefore(30, () => 0)).toBe(2_500);
  });

  it("puts the server's token into a subprotocol in browsers", () => {
    expect(credentials({ server: "a", sandbox: "b" }, true)).toEqual({
      protocols: ["holdfast.v1", "holdfast.token.a", "holdfast.sandbox.b"],
      headers: {},
    });
    expect(socketUrl("https://h/x/", "/create")).toBe("wss://h/x/create");
  });

  it("names every status by itself", () => {
    for (const [name, value] of Object.entries(SandboxEvent)) expect(name).toBe(value);
  });
});
