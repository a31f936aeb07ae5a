/** Every call that waits, and a caller who does not wait for it: a timeout, or an abort. */

import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Files } from "../src/files.js";
import {
  type CallOptions,
  Sandbox,
  type SandboxProcess,
  type Socket,
  type SocketFactory,
  TimedOut,
} from "../src/index.js";
import { PASS, ScriptedServer, settle } from "./server.js";

let server: ScriptedServer;
let sandbox: Sandbox;

async function created(): Promise<Sandbox> {
  const made = Sandbox.create("http://host:1", { token: "t", socket: server.factory });
  await settle();
  server.say("CREATING", PASS, "RUNNING");
  return made;
}

async function front(): Promise<SandboxProcess> {
  const starting = sandbox.exec("bash", "sleep");
  server.say("EXECUTION_RUNNING");
  return starting;
}

async function beside(): Promise<SandboxProcess> {
  const starting = sandbox.exec(["sleep"], { background: true });
  const { process_id, request_id } = server.last;
  server.say({ event: "started", process_id, request_id });
  return starting;
}

beforeEach(async () => {
  server = new ScriptedServer();
  sandbox = await created();
});

afterEach(() => {
  sandbox.detach();
  vi.useRealTimers();
});

/** Makes ready what it needs; then it is called by what this gives. */
type Ready = () => Promise<(options: CallOptions) => Promise<unknown>>;
const connect = (options: CallOptions) => ({ ...options, token: "t", socket: server.factory });

const CALLS: Record<string, Ready> = {
  "Sandbox.create": async () => (options) => Sandbox.create("ws://host", connect(options)),
  "Sandbox.attach": async () => (options) =>
    Sandbox.attach("ws://host", "id", "x", connect(options)),
  exec: async () => (options) => sandbox.exec("bash", "x", options),
  "exec, beside": async () => (options) => sandbox.exec(["x"], { background: true, ...options }),
  checkpoint: async () => (options) => sandbox.checkpoint(options),
  rollback: async () => (options) => sandbox.rollback(options),
  fork: async () => (options) => sandbox.fork(options),
  snapshotFilesystem: async () => (options) => sandbox.snapshotFilesystem("base", options),
  saveTemplate: async () => (options) => sandbox.saveTemplate("warm", options),
  kill: async () => (options) => sandbox.kill(options),
  "files.read": async () => (options) => sandbox.files.read("/x", options),
  "files.readText": async () => (options) => sandbox.files.readText("/x", options),
  "files.write": async () => (options) => sandbox.files.write("/x", "", options),
  "files.list": async () => (options) => sandbox.files.list("/", options),
  "files.rename": async () => (options) => sandbox.files.rename("/x", "/y", options),
  "files.remove": async () => (options) => sandbox.files.remove("/x", options),
  "files.mkdir": async () => (options) => sandbox.files.mkdir("/x", options),
  "process.wait": async () => {
    const process = await front();
    return (options) => process.wait(options);
  },
  "process.kill": async () => {
    const process = await front();
    return (options) => process.kill(options);
  },
  "process.kill, beside": async () => {
    const process = await beside();
    return (options) => process.kill(options);
  },
  "stdout.readAll": async () => {
    const process = await front();
    return (options) => process.stdout.readAll(options);
  },
  "stderr.readBytes": async () => {
    const process = await front();
    return (options) => process.stderr.readBytes(options);
  },
};

const said = () => server.sockets.flatMap((socket) => socket.sent).length;

it("is asked of every verb that there is", () => {
  const verbs = (of: object) =>
    Object.entries(Object.getOwnPropertyDescriptors(of))
      .filter(([name, { value }]) => name !== "constructor" && typeof value === "function")
      .map(([name]) => name);
  const files = verbs(Files.prototype).map((name) => `files.${name}`);
  const own = verbs(Sandbox.prototype).filter((name) => name !== "detach"); // it waits for nothing
  for (const name of [...own, ...files]) expect(Object.keys(CALLS)).toContain(name);
});

describe.each(Object.entries(CALLS))("%s", (name, ready) => {
  it("takes no longer than it may, and can be asked again", async () => {
    const call = await ready();
    await expect(call({ timeout: 10 })).rejects.toThrow(TimedOut);
    expect(sandbox.state).toMatch(/running|executing/); // giving up ends the waiting only
    if (name.startsWith("std")) return; // what a reader gave up on is nobody's any more
    await expect(call({ timeout: 10 })).rejects.toThrow("took longer than 10 ms");
  });

  it("does not even begin when it was aborted before", async () => {
    const call = await ready();
    const before = [said(), server.sockets.length];
    const reason = new Error("not wanted");
    await expect(call({ signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
    await settle();
    expect([said(), server.sockets.length]).toEqual(before);
  });

  it("ends when it is aborted meanwhile", async () => {
    const call = await ready();
    const given = new AbortController();
    const asked = call({ signal: given.signal, timeout: 60_000 });
    await settle();
    given.abort();
    await expect(asked).rejects.toMatchObject({ name: "AbortError" });
  });
});

describe("a call of several steps", () => {
  beforeEach(() => {
    vi.useFakeTimers();
  });

  it("has one time for all of them", async () => {
    const reading = expect(sandbox.files.read("/x", { timeout: 100 })).rejects.toThrow(
      "took longer than 100 ms",
    );
    await vi.advanceTimersByTimeAsync(80);
    const piece = { data: "AQ==", encoding: "base64", size: 2, modified: 1 };
    const { request_id } = server.last;
    server.say({ event: "files", verb: "read", path: "/x", request_id, ...piece });
    await settle();
    expect(server.last).toMatchObject({ verb: "read", offset: 1 });
    await vi.advanceTimersByTimeAsync(30);
    await reading;
  });

  it("counts the time that it waited for the connection", async () => {
    server.hangUp();
    const making = expect(sandbox.files.mkdir("/d", { timeout: 1_000 })).rejects.toThrow(TimedOut);
    await vi.advanceTimersByTimeAsync(900);
    server.say("RUNNING");
    await settle();
    expect(server.last).toMatchObject({ verb: "mkdir" });
    await vi.advanceTimersByTimeAsync(150);
    await making;
  });
});

it("takes nothing from the output when it was aborted before", async () => {
  const process = await front();
  server.say({ event: "stdout", data: "kept" }, "EXECUTION_DONE");
  await expect(process.stdout.readAll({ signal: AbortSignal.abort() })).rejects.toThrow();
  expect(await process.stdout.readAll()).toBe("kept");
});

describe("a connection that is given up while the way to it is looked for", () => {
  let found: (socket: Socket) => void;
  const looked = () =>
    new Promise<Socket>((resolve) => {
      found = resolve;
    });

  /** The way is there at last: it is closed, and nothing begins at its end. */
  async function arrives(): Promise<void> {
    found(await server.factory("ws://host/", { protocols: [], headers: {} }, () => {}));
    await settle();
    expect(server.socket.closedWith).toBe(1000);
    expect(server.frames).toEqual([]);
  }

  it("makes no sandbox", async () => {
    const given = new AbortController();
    const made = Sandbox.create("ws://host", { socket: looked, signal: given.signal });
    given.abort();
    await expect(made).rejects.toMatchObject({ name: "AbortError" });
    await arrives();
  });

  it("does not come back to one that was left", async () => {
    vi.useFakeTimers();
    let first = true;
    const factory: SocketFactory = (...args) => {
      const way = first ? server.factory(...args) : looked();
      first = false;
      return way;
    };
    const made = Sandbox.create("ws://host", { socket: factory });
    await settle();
    server.say("CREATING", PASS, "RUNNING");
    const other = await made;
    server.hangUp();
    await vi.advanceTimersByTimeAsync(200);
    other.detach();
    await arrives();
    const before = server.sockets.length;
    await vi.advanceTimersByTimeAsync(60_000);
    expect([other.state, server.sockets.length]).toEqual(["detached", before]);
  });
});
