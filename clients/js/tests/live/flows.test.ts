/** The client against a real server, whose address and engine come from the environment. */

import { afterEach, describe, expect, it } from "vitest";
import { Conflict, Denied, NotFound, Sandbox, Unsupported, UsageError } from "../../src/index.js";
import { CuttingProxy } from "./cutting.js";

const url = process.env.HOLDFAST_URL ?? "";
const token = process.env.HOLDFAST_TOKEN ?? "";
const exact = process.env.HOLDFAST_ENGINE !== "process";
const made: Sandbox[] = [];

async function create(options = {}): Promise<Sandbox> {
  const sandbox = await Sandbox.create(url, { token, enableCheckpoint: true, ...options });
  made.push(sandbox);
  return sandbox;
}

async function attach(sandbox: Sandbox): Promise<Sandbox> {
  const again = await Sandbox.attach(url, sandbox.sandboxId, sandbox.sandboxToken, { token });
  made.push(again);
  return again;
}

async function output(sandbox: Sandbox, code: string): Promise<string> {
  return (await sandbox.exec("bash", code)).stdout.readAll();
}

/** A line for each step, so that a reader never finds the count half written. */
const COUNTING = "echo $$ > /tmp/pid; while true; do echo >> /tmp/n; sleep 0.05; done";

/** How far it has counted, when that is further than it was. */
async function countBeyond(sandbox: Sandbox, before: number): Promise<number> {
  for (;;) {
    const count = Number(await output(sandbox, "cat /tmp/n 2>/dev/null | wc -l"));
    if (count > before) return count;
  }
}

afterEach(async () => {
  for (const sandbox of made.splice(0)) {
    if (sandbox.state === "running" || sandbox.state === "executing") await sandbox.kill();
  }
});

describe("a real server", () => {
  it("runs code, programs and several things at once", async () => {
    const sandbox = await create();
    const python = await sandbox.exec("python", "import sys\nprint(input())\nsys.exit(3)");
    python.writeToStdin("wörd\n");
    expect(await python.stdout.readAll()).toBe("wörd\n");
    expect((await python.wait()).code).toBe(3);

    const beside = await sandbox.exec(["sh", "-c", "echo $A; pwd; cat"], {
      env: { A: "from env" },
      cwd: "/tmp",
      background: true,
    });
    expect(await output(sandbox, "echo front")).toBe("front\n");
    beside.closeStdin();
    expect(await beside.stdout.readAll()).toBe("from env\n/tmp\n");

    const binary = await sandbox.exec(["printf", "\\377\\000"], { binary: true });
    expect([...(await binary.stdout.readBytes())]).toEqual([0xff, 0]);
  });

  it("kills what does not end, and refuses what it does not know", async () => {
    const sandbox = await create();
    const sleeping = await sandbox.exec("bash", "sleep 600 & sleep 600");
    await expect(sandbox.exec("bash", "true")).rejects.toThrow(Conflict);
    await sleeping.kill();
    expect((await sleeping.wait()).signal).toBe(9);
    await expect(sandbox.exec("cobol", "x")).rejects.toThrow(Unsupported);
    await expect(sandbox.exec(["/no/such/program"], { background: true })).rejects.toMatchObject({
      kind: expect.any(String),
    });
  });

  it("has files", async () => {
    const sandbox = await create();
    await sandbox.files.mkdir("/root/d");
    await sandbox.files.write("/root/d/x", new Uint8Array([0, 255]));
    expect([...(await sandbox.files.read("/root/d/x"))]).toEqual([0, 255]);
    const large = new Uint8Array(9_000_001).map((_, at) => at % 251);
    await sandbox.files.write("/root/d/large", large);
    await sandbox.files.rename("/root/d/large", "/root/d/e/y");
    expect(Buffer.compare(await sandbox.files.read("/root/d/e/y"), large)).toBe(0);
    const names = (await sandbox.files.list("/root/d")).map((entry) => entry.name);
    expect(names).toEqual(["e", "x"]);
    await sandbox.files.remove("/root/d");
    await expect(sandbox.files.read("/root/d/x")).rejects.toThrow(NotFound);
  });

  it("freezes and brings back", async () => {
    const sandbox = await create();
    await output(sandbox, "echo kept > /root/kept");
    const checkpoint = await sandbox.checkpoint({ reason: "before lunch" });
    expect(checkpoint.id).toMatch(/^[0-9a-f-]{36}$/);
    expect(sandbox.state).toBe("checkpointed");
    await expect(sandbox.exec("bash", "true")).rejects.toThrow(UsageError);

    const again = await attach(sandbox);
    expect(await output(again, "cat /root/kept")).toBe("kept\n");
    const [left, right] = await again.fork({ count: 2 });
    if (left === undefined || right === undefined) throw new Error("two forks were asked for");
    made.push(left, right);
    await output(left, "echo left > /root/kept");
    expect(await output(right, "cat /root/kept")).toBe("kept\n");

    await again.checkpoint({ leaveRunning: true });
    await output(again, "echo changed > /root/kept");
    await again.rollback({ to: checkpoint.id ?? "" });
    expect(await output(again, "cat /root/kept")).toBe("kept\n");
    await again.snapshotFilesystem("js-base");
    const based = await create({ filesystemSnapshotName: "js-base" });
    expect(await output(based, "cat /root/kept")).toBe("kept\n");
    expect(await based.saveTemplate("js-template")).not.toBe("");
    const templated = await create({ template: "js-template" });
    expect(await output(templated, "cat /root/kept")).toBe("kept\n");
    await expect(create({ template: "js-none" })).rejects.toThrow(NotFound);
  });

  it("refuses a checkpoint in the middle of an execution, which goes on", async () => {
    const sandbox = await create();
    const slow = await sandbox.exec("bash", "read; echo done");
    await expect(sandbox.checkpoint()).rejects.toThrow(Conflict);
    slow.writeToStdin("\n");
    expect(await slow.stdout.readAll()).toBe("done\n");
    expect(sandbox.state).toBe("running");
  });

  it.runIf(exact)("keeps processes alive across a checkpoint", async () => {
    const sandbox = await create();
    await sandbox.exec("bash", COUNTING, { background: true });
    const before = await countBeyond(sandbox, 3);
    await sandbox.checkpoint({ duringExecution: true });
    const again = await attach(sandbox);
    const back = await countBeyond(again, before - 1); // what was counted is still there
    await countBeyond(again, back);
  });

  it.runIf(exact)("forks what runs: the count goes on in each copy by itself", async () => {
    const sandbox = await create();
    await sandbox.exec("bash", COUNTING, { background: true });
    const before = await countBeyond(sandbox, 3);
    const copies = await sandbox.fork({ count: 2 });
    made.push(...copies);
    expect(copies).toHaveLength(2);
    for (const each of [sandbox, ...copies]) {
      const here = await countBeyond(each, before - 1);
      await countBeyond(each, here);
    }
    const [left, right] = copies as [Sandbox, Sandbox];
    // It is the same process in each, and another one: one ends, and the others go on.
    const end = "kill -9 $(cat /tmp/pid); while kill -0 $(cat /tmp/pid) 2>/dev/null; do :; done";
    await output(left, end);
    const stopped = await output(left, "wc -l < /tmp/n");
    for (const each of [sandbox, right]) {
      await countBeyond(each, (await countBeyond(each, Number(stopped))) + 3);
    }
    expect(await output(left, "wc -l < /tmp/n")).toBe(stopped);
  });

  it("lets nobody in without the right tokens", async () => {
    const sandbox = await create();
    await expect(Sandbox.create(url, { token: "wrong" })).rejects.toThrow(Denied);
    sandbox.detach();
    await expect(Sandbox.attach(url, sandbox.sandboxId, "wrong", { token })).rejects.toThrow(
      Denied,
    );
    await expect(Sandbox.attach(url, "0".repeat(32), "x", { token })).rejects.toThrow(NotFound);
    const again = await attach(sandbox);
    expect(await output(again, "echo alive")).toBe("alive\n");
  });

  it("comes back after the network broke, with no output lost or repeated", async () => {
    const proxy = await CuttingProxy.before(url);
    try {
      const sandbox = await Sandbox.create(proxy.url, { token });
      made.push(sandbox);
      const count = (to: number) => `for i in $(seq ${to}); do echo $i; sleep 0.002; done; exit 7`;
      const expected = (to: number) => Array.from({ length: to }, (_, i) => `${i + 1}\n`).join("");
      const beside = await sandbox.exec(["bash", "-c", count(450)], { background: true });
      const front = await sandbox.exec("bash", count(300));
      let seen = "";
      const reading = (async () => {
        for await (const text of front.stdout) seen += text;
      })();
      for (const lines of [50, 150]) {
        while (seen.split("\n").length < lines) {
          await new Promise((resolve) => setTimeout(resolve, 10));
        }
        proxy.cut();
      }
      await reading;
      expect(seen).toBe(expected(300));
      expect((await front.wait()).code).toBe(7);
      expect(await beside.stdout.readAll()).toBe(expected(450));
      expect((await beside.wait()).code).toBe(7);
      expect(front.lost + beside.lost).toBe(0);
      // Also where everything had been heard before the network broke again.
      await expect.poll(() => proxy.connections, { timeout: 20_000 }).toBeGreaterThanOrEqual(3);
      await sandbox.kill();
    } finally {
      proxy.close();
    }
  });

  it("is left by await using, and can be found again", async () => {
    let kept: Sandbox;
    {
      await using leaving = await create();
      kept = leaving;
    }
    expect(kept.state).toBe("detached");
    expect((await attach(kept)).state).toBe("running");
  });
});
