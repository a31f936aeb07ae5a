/** What runs in a sandbox: one execution in the foreground, any number of processes beside it. */

import { ConnectionLost, errorOfKind, type HoldfastError } from "./errors.js";
import type { ErrorEvent, ExitEvent, OutputEvent } from "./messages.js";
import { type ProcessHost, SandboxProcess } from "./process.js";

const RESUME_TIMEOUT = 2_000; // for the server to speak of an execution after a reconnect

export class Executions {
  readonly #host: ProcessHost;
  readonly #beside = new Map<string, SandboxProcess>();
  #front: SandboxProcess | undefined;
  #resuming: ReturnType<typeof setTimeout> | undefined;
  /** What has not been heard of since the connection broke. */
  readonly #unheard = new Set<SandboxProcess>();
  #count = 0;

  constructor(host: ProcessHost) {
    this.#host = host;
  }

  get front(): SandboxProcess | undefined {
    return this.#front;
  }

  /** The server says that something runs in the foreground: what did before, or something new. */
  running(): SandboxProcess {
    this.#front ??= new SandboxProcess(this.#host);
    this.#unheard.delete(this.#front);
    return this.#front;
  }

  /** A process beside the one in the foreground, under an id of its own. */
  addBeside(): SandboxProcess & { id: string } {
    this.#count += 1;
    const id = `p${this.#count}-${Math.random().toString(36).slice(2, 10)}`;
    const process = new SandboxProcess(this.#host, id) as SandboxProcess & { id: string };
    this.#beside.set(id, process);
    return process;
  }

  /** The server says that a process runs beside: one of ours has begun, or is still there. */
  handleStarted(id: string | null | undefined): void {
    const process = this.#find(id);
    if (process !== undefined) this.#unheard.delete(process);
  }

  /** It could not be started. */
  dropBeside(id: string): void {
    this.#beside.delete(id);
  }

  handleOutput(event: OutputEvent): void {
    this.#find(event.process_id)?.handleOutput(event);
  }

  handleExit(event: ExitEvent): void {
    this.#find(event.process_id)?.handleExit(event);
    if (event.process_id == null) return; // EXECUTION_DONE follows
    this.#beside.get(event.process_id)?.finish();
    this.#beside.delete(event.process_id);
  }

  /** An error that names a process ends it. */
  handleError(event: ErrorEvent): void {
    const process = event.process_id == null ? undefined : this.#beside.get(event.process_id);
    if (process?.id === undefined) return;
    this.#beside.delete(process.id);
    process.finish(errorOfKind(event.kind, event.message, { hint: event.hint ?? undefined }));
  }

  /** What was in the foreground is there no more; how it ended is said by `finish`. */
  takeFront(): SandboxProcess | undefined {
    const front = this.#front;
    this.#front = undefined;
    return front;
  }

  /** How much of each one's output has arrived, for a connection that must go on behind it. */
  seen(): { offset?: number; offsets?: Record<string, number> } {
    const offset = this.#front?.offset ?? 0;
    const beside = [...this.#beside].map(([id, process]) => [id, process.offset] as const);
    return {
      ...(offset > 0 && { offset }),
      ...(beside.length > 0 && { offsets: Object.fromEntries(beside) }),
    };
  }

  /** After a reconnect the server speaks at once of every process that it still knows. */
  awaitNews(): void {
    clearTimeout(this.#resuming);
    this.#unheard.clear();
    for (const process of this.#all()) this.#unheard.add(process);
    this.#resuming = setTimeout(() => {
      for (const process of this.#unheard) this.#missed(process);
      this.#unheard.clear();
    }, RESUME_TIMEOUT);
  }

  #missed(process: SandboxProcess): void {
    if (process === this.#front) this.#front = undefined;
    if (process.id !== undefined) this.#beside.delete(process.id);
    process.finish(
      new ConnectionLost("the process ended while the connection was broken", {
        hint: "how it ended is not known",
      }),
    );
  }

  /** Nothing will be heard of any of them. */
  end(error: HoldfastError): void {
    clearTimeout(this.#resuming);
    for (const process of this.#all()) process.finish(error);
    this.#front = undefined;
    this.#beside.clear();
  }

  #all(): SandboxProcess[] {
    return [...(this.#front === undefined ? [] : [this.#front]), ...this.#beside.values()];
  }

  #find(id: string | null | undefined): SandboxProcess | undefined {
    return id == null ? this.#front : this.#beside.get(id);
  }
}
