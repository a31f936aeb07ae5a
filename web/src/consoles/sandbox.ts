/** The console of a sandbox, by the client that everybody else uses. */

import { type OutputStream, Sandbox, type SandboxProcess, SandboxState } from "holdfast";
import { refusalOf } from "../api";
import type { InputMessage } from "../shapes";
import { Console, type Language } from "./console";
import { added } from "./transcript";

/** For as long as the tab is open: who made a sandbox here may come back to it. */
const KEPT = "holdfast.sandbox.";

export const remember = (id: string, token: string): void =>
  sessionStorage.setItem(KEPT + id, token);
export const tokenOf = (id: string): string | null => sessionStorage.getItem(KEPT + id);

const ENDINGS: Readonly<Record<string, string>> = {
  SANDBOX_CHECKPOINTED: "it was frozen",
  SANDBOX_DELETED: "its server does not run it any more",
  SANDBOX_KILLED: "it was killed, and only a fork of a checkpoint goes on",
};
const TERMINAL = new Set<string>([
  SandboxState.CHECKPOINTED,
  SandboxState.KILLED,
  SandboxState.DELETED,
]);

export class SandboxConsole extends Console {
  readonly languages = ["bash", "python"] as const;
  readonly #sandbox: Sandbox;
  #process: SandboxProcess | null = null;
  #count = 0;

  private constructor(sandbox: Sandbox) {
    super();
    this.#sandbox = sandbox;
    this.state.value = "ready";
  }

  get id(): string {
    return this.#sandbox.sandboxId;
  }

  static async create(name: string): Promise<SandboxConsole> {
    const told = { end: (_status: string) => {} };
    const sandbox = await Sandbox.create(location.origin, {
      onStatus: (status) => told.end(status),
      enableCheckpoint: true,
      idleTimeout: 3600,
      enableIdleTimeoutAutoCheckpoint: true,
      ...(name ? { name } : {}),
    });
    remember(sandbox.sandboxId, sandbox.sandboxToken);
    const console = new SandboxConsole(sandbox);
    told.end = (status) => console.#told(status);
    return console;
  }

  static async attach(id: string, token: string): Promise<SandboxConsole> {
    const told = { end: (_status: string) => {} };
    const sandbox = await Sandbox.attach(location.origin, id, token, {
      onStatus: (status) => told.end(status),
    });
    remember(id, token);
    const console = new SandboxConsole(sandbox);
    told.end = (status) => console.#told(status);
    const under = sandbox.execution;
    if (under) void console.#follow(under, "what was running");
    return console;
  }

  /** What the server says of the sandbox as a whole. */
  #told(status: string): void {
    const why = ENDINGS[status];
    if (why === undefined || !TERMINAL.has(this.#sandbox.state)) return;
    this.returns = status !== "SANDBOX_KILLED";
    this.ending.value = why;
    this.state.value = "ended";
  }

  run(language: Language, code: string): void {
    void this.#run(language, code);
  }

  async #run(language: Language, code: string): Promise<void> {
    try {
      const process = await this.#sandbox.exec(
        language,
        code,
        language === "python" ? { session: true } : {},
      );
      await this.#follow(process, code);
    } catch (error) {
      this.#say("error", refusalOf(error).message);
      this.#ended();
    }
  }

  async #follow(process: SandboxProcess, code: string): Promise<void> {
    this.#count += 1;
    this.#process = process;
    this.#say("code", code);
    const question: InputMessage = {
      type: "InputMessage",
      request_id: this.#count,
      execution_id: this.#count,
      prompt: "",
      password: false,
    };
    const running = new Set([this.#count]);
    this.transcript.value = { ...this.transcript.value, running, question };
    const read = async (stream: OutputStream, kind: "stdout" | "stderr") => {
      for await (const text of stream) this.#say(kind, String(text));
    };
    try {
      await Promise.all([read(process.stdout, "stdout"), read(process.stderr, "stderr")]);
      const exit = await process.wait();
      if (exit.reason) this.#say("error", exit.reason);
      else if (exit.signal) this.#say("note", `ended by signal ${exit.signal}`);
      else if (exit.code) this.#say("note", `exit code ${exit.code}`);
    } catch (error) {
      this.#say("error", refusalOf(error).message);
    }
    this.#ended();
  }

  #ended(): void {
    this.#process = null;
    this.transcript.value = { ...this.transcript.value, running: new Set(), question: null };
  }

  #say(kind: "code" | "stdout" | "stderr" | "error" | "note", text: string): void {
    this.transcript.value = added(this.transcript.value, { kind, text, id: this.#count });
  }

  answer(text: string): void {
    this.#say("stdout", `${text}\n`);
    this.#process?.writeToStdin(`${text}\n`);
  }

  interrupt(): void {
    void this.#process?.kill();
  }

  /** Go back to a checkpoint, by default the one before the head. */
  async rollback(to: string | undefined): Promise<void> {
    await this.#sandbox.rollback(to === undefined ? {} : { to });
    this.#say("note", "rolled back");
  }

  leave(): void {
    void this.#sandbox[Symbol.asyncDispose]();
  }
}
