/** What is being waited for: one of each step that statuses speak of, any number of requests. */

import { Conflict, errorOfKind, type HoldfastError } from "./errors.js";
import { type ErrorEvent, SandboxEvent } from "./messages.js";
import { Waiting } from "./waiting.js";

/** Steps that the server answers by statuses, which name no request: so one at a time. */
export type Step = "start" | "exec" | "checkpoint" | "snapshot" | "kill" | "kill process";

/** Statuses that end a step and tell nothing else about it. */
const ENDS: Readonly<Record<string, Step | undefined>> = {
  [SandboxEvent.SANDBOX_RUNNING]: "start",
  [SandboxEvent.SANDBOX_EXECUTION_DONE]: "kill process",
  [SandboxEvent.SANDBOX_EXECUTION_FORCE_KILLED]: "kill process",
  [SandboxEvent.SANDBOX_FILESYSTEM_SNAPSHOT_CREATED]: "snapshot",
  [SandboxEvent.SANDBOX_KILLED]: "kill",
};
const FAILS: Readonly<Record<string, Step | undefined>> = {
  [SandboxEvent.SANDBOX_EXECUTION_FORCE_KILL_ERROR]: "kill process",
  [SandboxEvent.SANDBOX_EXECUTION_IN_PROGRESS_ERROR]: "checkpoint",
  [SandboxEvent.SANDBOX_FILESYSTEM_SNAPSHOT_ERROR]: "snapshot",
  [SandboxEvent.SANDBOX_KILL_ERROR]: "kill",
};

const WORDS_TIMEOUT = 1_000; // for the reason that follows a status of failure

/** A failure whose words are still to come: a status tells that, and an `error` event tells why. */
interface Failing {
  fallback: HoldfastError;
  settle: (error: HoldfastError) => void;
  /** Ends the waiting for them. */
  timer: ReturnType<typeof setTimeout>;
}

export class Pending {
  readonly #steps = new Map<Step, Waiting<unknown>>();
  readonly #requests = new Map<string, Waiting<unknown>>();
  readonly #prefix: string;
  #failing: Failing | undefined;
  #count = 0;

  /** Requests are called by the prefix and a number, so that a log shows whose they are. */
  constructor(prefix: string) {
    this.#prefix = prefix;
  }

  /** Wait for a step. Throws Conflict when it is under way already. */
  step<T>(step: Step): Waiting<T> {
    if (this.#steps.has(step)) {
      throw new Conflict(`another ${step} is under way`, { hint: "wait for it first" });
    }
    const waiting = new Waiting<T>();
    this.#steps.set(step, waiting as Waiting<unknown>);
    return waiting;
  }

  waitsFor(step: Step): boolean {
    return this.#steps.has(step);
  }

  /** A step has come to its end. */
  done(step: Step, value: unknown = undefined): void {
    this.#steps.get(step)?.resolve(value);
    this.#steps.delete(step);
  }

  /** A status: it may end a step, well or not. */
  hear(status: string, failure: () => HoldfastError): void {
    const ended = ENDS[status];
    if (ended !== undefined) this.done(ended);
    const failed = FAILS[status];
    if (failed !== undefined) this.failStep(failed, failure());
  }

  /** Nobody waits for a step any more. */
  forget(step: Step): void {
    this.#steps.delete(step);
  }

  /** A request by an id that comes back in its answer. */
  request<T>(): { id: string; waiting: Waiting<T> } {
    this.#count += 1;
    const id = `${this.#prefix}:${this.#count}`;
    const waiting = new Waiting<T>();
    this.#requests.set(id, waiting as Waiting<unknown>);
    return { id, waiting };
  }

  answer(id: string, value: unknown): void {
    this.#requests.get(id)?.resolve(value);
    this.#requests.delete(id);
  }

  drop(id: string): void {
    this.#requests.delete(id);
  }

  /** A status says that something failed. The reason comes in the next event, or not at all. */
  failing(fallback: HoldfastError, settle: (error: HoldfastError) => void): void {
    this.settle();
    const timer = setTimeout(() => this.settle(), WORDS_TIMEOUT);
    this.#failing = { fallback, settle, timer };
  }

  failStep(step: Step, fallback: HoldfastError): void {
    this.failing(fallback, (error) => {
      this.#steps.get(step)?.reject(error);
      this.#steps.delete(step);
    });
  }

  /** An `error` event: the words for the failure before it, or the answer to a request. */
  explain(event: ErrorEvent): boolean {
    const details = { hint: event.hint ?? undefined };
    if (event.request_id != null && this.#requests.has(event.request_id)) {
      this.#requests.get(event.request_id)?.reject(errorOfKind(event.kind, event.message, details));
      this.#requests.delete(event.request_id);
      return true;
    }
    const failing = this.#failing;
    if (failing === undefined) return false;
    this.#failing = undefined;
    clearTimeout(failing.timer);
    // A server that does not know kinds says "fault" by default: what the status says is better.
    const kind =
      event.kind === undefined || event.kind === "fault" ? failing.fallback.kind : event.kind;
    failing.settle(errorOfKind(kind, event.message, { hint: event.hint ?? failing.fallback.hint }));
    return true;
  }

  /** No words came: the status has to do. */
  settle(): void {
    const failing = this.#failing;
    this.#failing = undefined;
    clearTimeout(failing?.timer);
    failing?.settle(failing.fallback);
  }

  /** What was asked for will not be answered, here or by this connection. */
  end(error: HoldfastError): void {
    this.settle();
    for (const waiting of [...this.#steps.values(), ...this.#requests.values()])
      waiting.reject(error);
    this.#steps.clear();
    this.#requests.clear();
  }
}
