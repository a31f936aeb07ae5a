/// <reference lib="esnext.disposable" preserve="true" />
/** A sandbox on a server, as programs use it. */

import { Conversation } from "./conversation.js";
import { Files } from "./files.js";
import type { FilesEvent, ForkEvent, RollbackEvent, TemplateEvent } from "./messages.js";
import { passFor, remember } from "./passes.js";
import type { SandboxProcess } from "./process.js";
import { createRequest, executeRequest } from "./requests.js";
import type {
  CallOptions,
  CheckpointInfo,
  CheckpointOptions,
  ConnectOptions,
  CreateOptions,
  ExecOptions,
  SandboxState,
} from "./types.js";
import { shared } from "./waiting.js";

export class Sandbox {
  /** Files inside it. */
  readonly files: Files;
  readonly #talk: Conversation;

  private constructor(talk: Conversation) {
    this.#talk = talk;
    this.files = new Files((fields, options) => talk.request<FilesEvent>("files", fields, options));
  }

  /** Make a sandbox and wait until it runs. */
  static async create(url: string, options: CreateOptions = {}): Promise<Sandbox> {
    const talk = new Conversation(url, options);
    await talk.create(createRequest(options), options);
    return new Sandbox(talk);
  }

  /**
   * Go back to a sandbox, also to one that was checkpointed. The tokens of a sandbox that this
   * program made are remembered.
   */
  static async attach(
    url: string,
    sandboxId: string,
    sandboxToken?: string,
    options: ConnectOptions = {},
  ): Promise<Sandbox> {
    const pass = passFor(sandboxId, sandboxToken, options.token);
    const all = { ...options, token: pass.token };
    const talk = new Conversation(url, all, { id: sandboxId, token: pass.sandboxToken });
    await talk.attach(options);
    return new Sandbox(talk);
  }

  get sandboxId(): string {
    return this.#talk.id;
  }

  get sandboxToken(): string {
    return this.#talk.token;
  }

  /**
   * What the server's log calls everything that this object asks for; where several requests can
   * be under way, each has a number behind it. A browser cannot tell it to the server before the
   * sandbox is there: there, making it goes by another name.
   */
  get requestId(): string {
    return this.#talk.requestId;
  }

  get state(): SandboxState {
    return this.#talk.state;
  }

  /** What runs in the foreground; after `attach`, what was running when it was frozen. */
  get execution(): SandboxProcess | undefined {
    return this.#talk.execution;
  }

  /** Run code in a language, or a program by its arguments. Resolves when it has started. */
  async exec(language: string, code: string, options?: ExecOptions): Promise<SandboxProcess>;
  async exec(argv: string[], options?: ExecOptions): Promise<SandboxProcess>;
  async exec(
    what: string | string[],
    codeOrOptions?: string | ExecOptions,
    given?: ExecOptions,
  ): Promise<SandboxProcess> {
    const options = (typeof codeOrOptions === "object" ? codeOrOptions : given) ?? {};
    const code = typeof codeOrOptions === "string" ? codeOrOptions : "";
    return this.#talk.execute(executeRequest(what, code, options), options);
  }

  /**
   * Freeze the sandbox; it is durable when this resolves. Unless `leaveRunning` is set, this object
   * is of no more use then: `Sandbox.attach` brings the sandbox back.
   */
  async checkpoint(options: CheckpointOptions = {}): Promise<CheckpointInfo> {
    return this.#talk.checkpoint(options);
  }

  /** Go back to an earlier checkpoint, by default to the one before the last; the id stays. */
  async rollback(options: CallOptions & { to?: string } = {}): Promise<string> {
    const fields = options.to === undefined ? {} : { checkpoint: options.to };
    return (await this.#talk.request<RollbackEvent>("rollback", fields, options)).checkpoint;
  }

  /** Live copies of this very moment, each isolated from the others. */
  async fork(options: CallOptions & { count?: number } = {}): Promise<Sandbox[]> {
    const { url, options: own } = this.#talk;
    const fields = { count: options.count ?? 1 };
    const left = shared(options);
    const made = await this.#talk.request<ForkEvent>("fork", fields, left());
    // How long making this one might take says nothing about the copies.
    const each = { ...own, signal: undefined, timeout: undefined, ...left() };
    return Promise.all(
      made.sandboxes.map(({ sandbox_id, sandbox_token }) => {
        remember(sandbox_id, sandbox_token, own.token);
        return Sandbox.attach(url, sandbox_id, sandbox_token, each);
      }),
    );
  }

  /** Keep the files under a name, from which new sandboxes can be made. */
  async snapshotFilesystem(name: string, options: CallOptions = {}): Promise<void> {
    const frame = { action: "snapshot_filesystem", name };
    await this.#talk.step<void>("snapshot", frame, "the snapshot", options);
  }

  /** Keep it, with what runs in it, for `Sandbox.create(url, { template: name })`. */
  async saveTemplate(name: string, options: CallOptions = {}): Promise<string> {
    return (await this.#talk.request<TemplateEvent>("save_template", { name }, options)).checkpoint;
  }

  /** End the sandbox for good. */
  async kill(options: CallOptions = {}): Promise<void> {
    await this.#talk.step<void>("kill", { action: "kill_sandbox" }, "killing the sandbox", options);
  }

  /** Leave it; it goes on until its idle time is over, and can be attached to. */
  detach(): void {
    this.#talk.leave();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.detach();
  }
}
