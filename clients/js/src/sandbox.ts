/// <reference lib="esnext.disposable" preserve="true" />
/** A sandbox on a server. What the server says changes its state by the table in `states.ts`. */

import { Connection } from "./connection.js";
import { Conflict, ConnectionLost, type HoldfastError, UsageError } from "./errors.js";
import { parseEvent } from "./events.js";
import { Executions } from "./executions.js";
import { failureOf } from "./failures.js";
import { Files } from "./files.js";
import type {
  CheckpointEvent,
  ExecuteRequest,
  FilesEvent,
  ForkEvent,
  RollbackEvent,
  StartedEvent,
  TemplateEvent,
} from "./messages.js";
import { SandboxEvent } from "./messages.js";
import { forget, passFor, remember } from "./passes.js";
import { Pending } from "./pending.js";
import type { SandboxProcess } from "./process.js";
import { checkpointInfo, checkpointRequest, createRequest, executeRequest } from "./requests.js";
import { inBrowser, openSocket } from "./socket.js";
import { afterClose, afterStatus, TERMINAL } from "./states.js";
import {
  type CallOptions,
  type CheckpointInfo,
  type CheckpointOptions,
  type ConnectOptions,
  type CreateOptions,
  type ExecOptions,
  SandboxState,
} from "./types.js";
import { Waiting, within } from "./waiting.js";

export class Sandbox {
  /** Files inside it. */
  readonly files = new Files((fields, options) =>
    this.#request<FilesEvent>("files", fields, options),
  );
  readonly #connection: Connection;
  readonly #options: ConnectOptions;
  readonly #pending = new Pending();
  readonly #executions = new Executions(this);
  #state: SandboxState = SandboxState.CONNECTING;
  #id: string | undefined;
  #leaveRunning = false;
  #checkpoint: CheckpointEvent | undefined;
  #ended: HoldfastError | undefined;
  /** While the connection is broken: settled when it is back, or will not come back. */
  #back: Waiting<void> | undefined;

  private constructor(url: string, options: ConnectOptions, pass?: { id: string; token: string }) {
    this.#options = options;
    this.#id = pass?.id;
    this.#connection = new Connection(
      url,
      { server: options.token, sandbox: pass?.token },
      options.socket ?? openSocket,
      this,
    );
  }

  /** Make a sandbox and wait until it runs. */
  static async create(url: string, options: CreateOptions = {}): Promise<Sandbox> {
    const sandbox = new Sandbox(url, options);
    await sandbox.#start("/create", createRequest(options), options);
    return sandbox;
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
    const sandbox = new Sandbox(url, all, { id: sandboxId, token: pass.sandboxToken });
    await sandbox.#start(sandbox.#attachPath(), undefined, options);
    return sandbox;
  }

  get sandboxId(): string {
    return this.#id ?? "";
  }

  get sandboxToken(): string {
    return this.#connection.tokens.sandbox ?? "";
  }

  /** What the server's log calls everything that this object asks for; empty in a browser. */
  get requestId(): string {
    return inBrowser() ? "" : this.#connection.requestId;
  }

  get state(): SandboxState {
    return this.#state;
  }

  /** What runs in the foreground; after `attach`, what was running when it was frozen. */
  get execution(): SandboxProcess | undefined {
    return this.#executions.front;
  }

  // -- running --------------------------------------------------------------------------

  /** Run code in a language, or a program by its arguments. Resolves when it has started. */
  async exec(language: string, code: string, options?: ExecOptions): Promise<SandboxProcess>;
  async exec(argv: string[], options?: ExecOptions): Promise<SandboxProcess>;
  async exec(
    what: string | string[],
    codeOrOptions?: string | ExecOptions,
    given?: ExecOptions,
  ): Promise<SandboxProcess> {
    const options = (typeof codeOrOptions === "object" ? codeOrOptions : given) ?? {};
    const frame = executeRequest(
      what,
      typeof codeOrOptions === "string" ? codeOrOptions : "",
      options,
    );
    this.#check();
    if (this.#back) await this.#comeBack("starting the process", options);
    if (options.background) return this.#execBeside(frame, options);
    if (this.execution !== undefined) {
      throw new Conflict("an execution is under way", {
        hint: "wait for it, or run this one with background: true",
      });
    }
    const waiting = this.#pending.step<SandboxProcess>("exec");
    return this.#ask(waiting, frame, "starting the process", options, () =>
      this.#pending.forget("exec"),
    );
  }

  async #execBeside(frame: ExecuteRequest, options: ExecOptions): Promise<SandboxProcess> {
    const process = this.#executions.addBeside();
    const { id: request, waiting } = this.#pending.request<StartedEvent>();
    const full = { ...frame, process_id: process.id, request_id: request };
    try {
      await this.#ask(waiting, full, "starting the process", options, () =>
        this.#pending.drop(request),
      );
    } catch (error) {
      this.#executions.dropBeside(process.id);
      throw error;
    }
    return process;
  }

  // -- freezing and bringing back -------------------------------------------------------

  /**
   * Freeze the sandbox; it is durable when this resolves. Unless `leaveRunning` is set, this object
   * is of no more use then: `Sandbox.attach` brings the sandbox back.
   */
  async checkpoint(options: CheckpointOptions = {}): Promise<CheckpointInfo> {
    this.#check();
    if (this.#back) await this.#comeBack("the checkpoint", options);
    const waiting = this.#pending.step<CheckpointInfo>("checkpoint");
    this.#leaveRunning = options.leaveRunning ?? false;
    this.#checkpoint = undefined;
    const frame = checkpointRequest(options);
    return this.#ask(waiting, frame, "the checkpoint", options, () =>
      this.#pending.forget("checkpoint"),
    );
  }

  /** Go back to an earlier checkpoint, by default to the one before the last; the id stays. */
  async rollback(options: CallOptions & { to?: string } = {}): Promise<string> {
    const fields = options.to === undefined ? {} : { checkpoint: options.to };
    return (await this.#request<RollbackEvent>("rollback", fields, options)).checkpoint;
  }

  /** Live copies of this very moment, each isolated from the others. */
  async fork(options: CallOptions & { count?: number } = {}): Promise<Sandbox[]> {
    const made = await this.#request<ForkEvent>("fork", { count: options.count ?? 1 }, options);
    const { url } = this.#connection;
    // How long making this one might take says nothing about the copies.
    const { signal, timeout } = options;
    const each = { ...this.#options, signal, timeout };
    return Promise.all(
      made.sandboxes.map(({ sandbox_id, sandbox_token }) => {
        remember(sandbox_id, sandbox_token, this.#options.token);
        return Sandbox.attach(url, sandbox_id, sandbox_token, each);
      }),
    );
  }

  /** Keep the files under a name, from which new sandboxes can be made. */
  async snapshotFilesystem(name: string, options: CallOptions = {}): Promise<void> {
    this.#check();
    if (this.#back) await this.#comeBack("the snapshot", options);
    const waiting = this.#pending.step<void>("snapshot");
    await this.#ask(waiting, { action: "snapshot_filesystem", name }, "the snapshot", options, () =>
      this.#pending.forget("snapshot"),
    );
  }

  /** Keep it, with what runs in it, for `Sandbox.create(url, { template: name })`. */
  async saveTemplate(name: string, options: CallOptions = {}): Promise<string> {
    return (await this.#request<TemplateEvent>("save_template", { name }, options)).checkpoint;
  }

  // -- the end ----------------------------------------------------------------------------

  /** End the sandbox for good. */
  async kill(options: CallOptions = {}): Promise<void> {
    this.#check();
    if (this.#back) await this.#comeBack("killing the sandbox", options);
    const waiting = this.#pending.step<void>("kill");
    await this.#ask(waiting, { action: "kill_sandbox" }, "killing the sandbox", options, () =>
      this.#pending.forget("kill"),
    );
  }

  /** Leave it; it goes on until its idle time is over, and can be attached to. */
  detach(): void {
    if (TERMINAL.has(this.#state)) return;
    this.#state = SandboxState.DETACHED;
    this.#end(new UsageError("this client has left the sandbox", { hint: "Sandbox.attach" }));
    this.#connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.detach();
  }

  // -- what the server says -----------------------------------------------------------------

  /** @internal */
  handleMessage(data: string): void {
    const event = parseEvent(data);
    if (event === undefined || TERMINAL.has(this.#state)) {
      // After the end only the reason for it is still of interest.
      if (event?.event === "error") this.#pending.explain(event);
      return;
    }
    if (event.event !== "error") this.#pending.settle();
    switch (event.event) {
      case "status_update":
        this.#handleStatus(event.status, event.message ?? "");
        break;
      case "sandbox_id":
        this.#id = event.sandbox_id;
        this.#connection.tokens.sandbox = event.sandbox_token;
        remember(event.sandbox_id, event.sandbox_token, this.#options.token);
        break;
      case "stdout":
      case "stderr":
        this.#executions.handleOutput(event);
        break;
      case "started":
        this.#executions.handleStarted(event.process_id);
        if (event.request_id != null) this.#pending.answer(event.request_id, event);
        break;
      case "exit":
        this.#executions.handleExit(event);
        break;
      case "error":
        if (!this.#pending.explain(event)) this.#executions.handleError(event);
        break;
      case "checkpoint":
        this.#checkpoint = event;
        break;
      case "fork":
      case "rollback":
      case "snapshot":
      case "template":
      case "files":
        if (event.request_id != null) this.#pending.answer(event.request_id, event);
        break;
      default: // of a newer server
    }
  }

  /** @internal */
  handleClose(code: number, reason: string): void {
    this.#pending.settle();
    const before = this.#state;
    if (TERMINAL.has(before)) return; // no surprise
    this.#state = afterClose(before, this.#options.enableAutoReconnect ?? true);
    if (this.#state === SandboxState.RECONNECTING) {
      this.#pending.end(
        new ConnectionLost("the connection broke before the answer came", {
          hint: "it may have been done or not; the sandbox itself goes on",
        }),
      );
      this.#back ??= new Waiting();
      void this.#reconnect();
    } else if (this.#state === SandboxState.FAILED) {
      const said = reason ? `: ${reason}` : "";
      this.#end(
        new ConnectionLost(`the server hung up while it was ${before} (${code})${said}`, {
          hint: "Sandbox.attach goes on if the sandbox is still there",
        }),
      );
    }
  }

  #handleStatus(status: string, message: string): void {
    const before = this.#state;
    const context = { leaveRunning: this.#leaveRunning, executing: this.execution !== undefined };
    this.#state = afterStatus(before, status, context);
    if (this.#state === SandboxState.RUNNING || this.#state === SandboxState.EXECUTING) {
      this.#back?.resolve();
      this.#back = undefined;
    }
    this.#options.onStatus?.(status, message);
    switch (status) {
      case SandboxEvent.SANDBOX_RUNNING:
        this.#pending.done("start");
        if (before === SandboxState.RECONNECTING) this.#executions.awaitNews();
        break;
      case SandboxEvent.SANDBOX_EXECUTION_RUNNING:
        this.#pending.done("exec", this.#executions.running());
        break;
      case SandboxEvent.SANDBOX_EXECUTION_DONE:
        this.#executions.takeFront()?.finish();
        this.#pending.done("kill process");
        break;
      case SandboxEvent.SANDBOX_EXECUTION_ERROR:
      case SandboxEvent.SANDBOX_EXECUTION_UNSUPPORTED_LANGUAGE_ERROR:
        this.#failExecution(failureOf(status, message));
        break;
      case SandboxEvent.SANDBOX_EXECUTION_FORCE_KILLED:
        this.#pending.done("kill process");
        break;
      case SandboxEvent.SANDBOX_EXECUTION_FORCE_KILL_ERROR:
        this.#pending.failStep("kill process", failureOf(status, message));
        break;
      case SandboxEvent.SANDBOX_CHECKPOINTED:
        this.#leaveRunning = false;
        this.#pending.done("checkpoint", checkpointInfo(this.#checkpoint));
        break;
      case SandboxEvent.SANDBOX_EXECUTION_IN_PROGRESS_ERROR:
        this.#pending.failStep("checkpoint", failureOf(status, message));
        break;
      case SandboxEvent.SANDBOX_FILESYSTEM_SNAPSHOT_CREATED:
        this.#pending.done("snapshot");
        break;
      case SandboxEvent.SANDBOX_FILESYSTEM_SNAPSHOT_ERROR:
        this.#pending.failStep("snapshot", failureOf(status, message));
        break;
      case SandboxEvent.SANDBOX_KILLED:
        this.#pending.done("kill");
        break;
      case SandboxEvent.SANDBOX_KILL_ERROR:
        this.#pending.failStep("kill", failureOf(status, message));
        break;
      default: // those that only tell how far it is
    }
    if (this.#state !== before && TERMINAL.has(this.#state)) this.#finish(status, message);
  }

  /** It came to its end by what the server said: well, or with a reason that may still follow. */
  #finish(status: string, message: string): void {
    if (this.#state === SandboxState.FAILED) {
      this.#pending.failing(failureOf(status, message), (error) => this.#end(error));
      return;
    }
    const hints: Partial<Record<SandboxState, string>> = {
      checkpointed: "Sandbox.attach brings it back",
      deleted: "make a new one; a longer idleTimeout keeps one longer",
    };
    if (this.#state !== SandboxState.CHECKPOINTED) forget(this.sandboxId);
    this.#end(new UsageError(`the sandbox is ${this.#state}`, { hint: hints[this.#state] }));
    this.#connection.close();
  }

  #failExecution(fallback: HoldfastError): void {
    if (this.#pending.waitsFor("exec")) {
      this.#pending.failStep("exec", fallback);
      return;
    }
    const failed = this.#executions.takeFront();
    this.#pending.failing(fallback, (error) => failed?.finish(error));
  }

  // -- underneath -----------------------------------------------------------------------

  async #start(path: string, first: object | undefined, options: CallOptions): Promise<void> {
    const waiting = this.#pending.step<void>("start");
    const work = async () => {
      await this.#connection.open(path);
      if (first !== undefined) this.#connection.send(first);
      await waiting.promise;
    };
    try {
      await within(work(), "reaching the sandbox", options);
    } catch (error) {
      this.#state = SandboxState.FAILED;
      this.#connection.close();
      throw error;
    }
  }

  async #request<T>(action: string, fields: object, options: CallOptions): Promise<T> {
    this.#check();
    if (this.#back) await this.#comeBack(action, options);
    const { id, waiting } = this.#pending.request<T>();
    return this.#ask(waiting, { action, ...fields, request_id: id }, action, options, () =>
      this.#pending.drop(id),
    );
  }

  async #ask<T>(
    waiting: Waiting<T>,
    frame: object,
    what: string,
    options: CallOptions,
    forget: () => void,
  ): Promise<T> {
    try {
      this.#connection.send(frame);
    } catch (error) {
      forget();
      throw error;
    }
    return within(waiting.promise, what, options, forget);
  }

  /** @internal */
  send(frame: object): void {
    this.#check();
    this.#connection.send(frame);
  }

  /** @internal */
  async killProcess(process: SandboxProcess): Promise<void> {
    if (process.id !== undefined) {
      this.send({ action: "kill_process", process_id: process.id });
      await process.wait();
      return;
    }
    const waiting = this.#pending.step<void>("kill process");
    await this.#ask(waiting, { action: "kill_process" }, "killing the process", {}, () =>
      this.#pending.forget("kill process"),
    );
  }

  /** While the connection is broken: until it is back. Throws when it does not come back. */
  async #comeBack(what: string, options: CallOptions): Promise<void> {
    await within(this.#back?.promise ?? Promise.resolve(), what, options);
    this.#check();
  }

  #check(): void {
    if (this.#ended !== undefined) throw this.#ended;
  }

  #end(error: HoldfastError): void {
    this.#ended = error;
    this.#back?.reject(error);
    this.#pending.end(error);
    this.#executions.end(error);
  }

  async #reconnect(): Promise<void> {
    const hello = () => ({ action: "reconnect", ...this.#executions.seen() });
    const wanted = () => this.#state === SandboxState.RECONNECTING;
    try {
      // The server's statuses say the rest; another close begins anew.
      await this.#connection.reopen(this.#attachPath(), hello, wanted);
    } catch (error) {
      this.#state = SandboxState.FAILED;
      this.#end(
        new ConnectionLost("the connection broke and could not be made again", {
          cause: error,
          hint: "Sandbox.attach goes on if the sandbox is still there",
        }),
      );
    }
  }

  #attachPath(): string {
    return `/attach/${encodeURIComponent(this.sandboxId)}`;
  }
}
