/**
 * What is said between a program and the server about one sandbox: what was asked for and waits
 * for its answer, and the state that follows, by the table in `states.ts`, from what is said.
 */

import { Connection } from "./connection.js";
import { Conflict, ConnectionLost, type HoldfastError, NotFound, UsageError } from "./errors.js";
import { parseEvent } from "./events.js";
import { Executions } from "./executions.js";
import { failureOf } from "./failures.js";
import type { CheckpointEvent, ExecuteRequest, StartedEvent } from "./messages.js";
import { SandboxEvent } from "./messages.js";
import { forget, remember } from "./passes.js";
import { Pending, type Step } from "./pending.js";
import type { SandboxProcess } from "./process.js";
import { checkpointInfo, checkpointRequest } from "./requests.js";
import { openSocket } from "./socket.js";
import { afterClose, afterStatus, TERMINAL } from "./states.js";
import {
  type CallOptions,
  type CheckpointInfo,
  type CheckpointOptions,
  type ConnectOptions,
  type ExecOptions,
  SandboxState,
} from "./types.js";
import { checkWanted, shared, Waiting, within } from "./waiting.js";

export class Conversation {
  readonly options: ConnectOptions;
  readonly #connection: Connection;
  readonly #pending: Pending;
  readonly #executions = new Executions(this);
  #state: SandboxState = SandboxState.CONNECTING;
  #id: string | undefined;
  #leaveRunning = false;
  #checkpoint: CheckpointEvent | undefined;
  #ended: HoldfastError | undefined;
  /** While the connection is broken: settled when it is back, or will not come back. */
  #back: Waiting<void> | undefined;

  constructor(url: string, options: ConnectOptions, pass?: { id: string; token: string }) {
    this.options = options;
    this.#id = pass?.id;
    this.#connection = new Connection(
      url,
      { server: options.token, sandbox: pass?.token },
      options.socket ?? openSocket,
      this,
    );
    this.#pending = new Pending(this.#connection.requestId);
  }

  get url(): string {
    return this.#connection.url;
  }

  get id(): string {
    return this.#id ?? "";
  }

  get token(): string {
    return this.#connection.tokens.sandbox ?? "";
  }

  get requestId(): string {
    return this.#connection.requestId;
  }

  get state(): SandboxState {
    return this.#state;
  }

  /** What runs in the foreground. */
  get execution(): SandboxProcess | undefined {
    return this.#executions.front;
  }

  // -- what is asked --------------------------------------------------------------------

  /** Reach a new sandbox, described by the first frame. */
  create(first: object, options: CallOptions): Promise<void> {
    return this.#start("/create", first, options);
  }

  /** Reach the sandbox that this is about. */
  attach(options: CallOptions): Promise<void> {
    return this.#start(this.#attachPath(), undefined, options);
  }

  async #start(path: string, first: object | undefined, options: CallOptions): Promise<void> {
    checkWanted(options);
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

  /** Ask for what the server answers by the request's id. */
  async request<T>(action: string, fields: object, options: CallOptions): Promise<T> {
    this.#check(options);
    const left = this.#back ? await this.#comeBack(action, options) : options;
    return this.#request({ action, ...fields }, action, left);
  }

  /** Ask for what the server answers by statuses. */
  async step<T>(step: Step, frame: object, what: string, options: CallOptions): Promise<T> {
    this.#check(options);
    const left = this.#back ? await this.#comeBack(what, options) : options;
    return this.#step(step, frame, what, left);
  }

  /** Start a process, in the foreground or beside it. */
  async execute(frame: ExecuteRequest, options: ExecOptions): Promise<SandboxProcess> {
    const what = "starting the process";
    this.#check(options);
    const left = this.#back ? await this.#comeBack(what, options) : options;
    if (options.background) return this.#executeBeside(frame, what, left);
    if (this.execution !== undefined) {
      throw new Conflict("an execution is under way", {
        hint: "wait for it, or run this one with background: true",
      });
    }
    return this.#step("exec", frame, what, left);
  }

  async #executeBeside(frame: ExecuteRequest, what: string, options: CallOptions) {
    const process = this.#executions.addBeside();
    try {
      await this.#request<StartedEvent>({ ...frame, process_id: process.id }, what, options);
    } catch (error) {
      this.#executions.dropBeside(process.id);
      throw error;
    }
    return process;
  }

  async checkpoint(options: CheckpointOptions): Promise<CheckpointInfo> {
    const what = "the checkpoint";
    this.#check(options);
    const left = this.#back ? await this.#comeBack(what, options) : options;
    const waiting = this.#pending.step<CheckpointInfo>("checkpoint");
    this.#leaveRunning = options.leaveRunning ?? false;
    this.#checkpoint = undefined;
    return this.#ask(waiting, checkpointRequest(options), what, left, () =>
      this.#pending.forget("checkpoint"),
    );
  }

  async killProcess(process: SandboxProcess, options: CallOptions): Promise<void> {
    const what = "killing the process";
    this.#check(options);
    if (process.id === undefined) {
      await this.#step("kill process", { action: "kill_process" }, what, options);
      return;
    }
    // It is answered by an error, or by the end of the process.
    const { id, waiting } = this.#pending.request<unknown>();
    const ended = () => this.#pending.answer(id, undefined);
    void process.wait().then(ended, ended);
    const frame = { action: "kill_process", process_id: process.id, request_id: id };
    try {
      await this.#ask(waiting, frame, what, options, () => this.#pending.drop(id));
    } catch (error) {
      if (!(error instanceof NotFound)) throw error; // it ended meanwhile
    }
  }

  /** Say something that is not answered. */
  send(frame: object): void {
    this.#check();
    this.#connection.send(frame);
  }

  /** Hang up. Whoever still waits is told so. */
  leave(): void {
    if (TERMINAL.has(this.#state)) return;
    this.#state = SandboxState.DETACHED;
    this.#end(new UsageError("this client has left the sandbox", { hint: "Sandbox.attach" }));
    this.#connection.close();
  }

  async #step<T>(step: Step, frame: object, what: string, options: CallOptions): Promise<T> {
    const waiting = this.#pending.step<T>(step);
    return this.#ask(waiting, frame, what, options, () => this.#pending.forget(step));
  }

  async #request<T>(frame: object, what: string, options: CallOptions): Promise<T> {
    const { id, waiting } = this.#pending.request<T>();
    return this.#ask(waiting, { ...frame, request_id: id }, what, options, () =>
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

  /**
   * While the connection is broken: until it is back; what is left of the caller's patience.
   * Throws when it does not come back.
   */
  async #comeBack(what: string, options: CallOptions): Promise<CallOptions> {
    const left = shared(options);
    await within(this.#back?.promise ?? Promise.resolve(), what, left());
    this.#check();
    return left();
  }

  /** Throws when there is nothing to ask any more, or nobody who wants to know. */
  #check(options: CallOptions = {}): void {
    checkWanted(options);
    if (this.#ended !== undefined) throw this.#ended;
  }

  // -- what the server says -----------------------------------------------------------------

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
        remember(event.sandbox_id, event.sandbox_token, this.options.token);
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

  handleClose(code: number, reason: string): void {
    this.#pending.settle();
    const before = this.#state;
    if (TERMINAL.has(before)) return; // no surprise
    this.#state = afterClose(before, this.options.enableAutoReconnect ?? true);
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
    this.options.onStatus?.(status, message);
    this.#pending.hear(status, () => failureOf(status, message));
    switch (status) {
      case SandboxEvent.SANDBOX_RUNNING:
        if (before === SandboxState.RECONNECTING) this.#executions.awaitNews();
        break;
      case SandboxEvent.SANDBOX_EXECUTION_RUNNING:
        this.#pending.done("exec", this.#executions.running());
        break;
      case SandboxEvent.SANDBOX_EXECUTION_DONE:
        this.#executions.takeFront()?.finish();
        break;
      case SandboxEvent.SANDBOX_EXECUTION_ERROR:
      case SandboxEvent.SANDBOX_EXECUTION_UNSUPPORTED_LANGUAGE_ERROR:
        this.#failExecution(failureOf(status, message));
        break;
      case SandboxEvent.SANDBOX_CHECKPOINTED:
        this.#leaveRunning = false;
        this.#pending.done("checkpoint", checkpointInfo(this.#checkpoint));
        break;
      default: // those that only end a step, or tell how far it is
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
    if (this.#state !== SandboxState.CHECKPOINTED) forget(this.id);
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
    return `/attach/${encodeURIComponent(this.id)}`;
  }
}
