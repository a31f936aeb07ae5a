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
  #count = 0;

  constructor(host: ProcessHost) {
    this.#host = host;
  }

  get front(): SandboxProcess | undefined {
    return this.#front;
  }

  /** The server says that something runs in the foreground: what did before, or something new. */
  running(): SandboxProcess {
    clearTimeout(this.#resuming);
    this.#front ??= new SandboxProcess(this.#host);
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
    clearTimeout(this.#resuming);
    const front = this.#front;
    this.#front = undefined;
    return front;
  }

  /** After a reconnect the server speaks of an execution at once, if it still knows of one. */
  awaitFront(): void {
    if (this.#front === undefined) return;
    this.#resuming = setTimeout(() => {
      this.takeFront()?.finish(
        new ConnectionLost("the process ended while the connection was broken", {
          hint: "how it ended is not known",
        }),
      );
    }, RESUME_TIMEOUT);
  }

  /** Nothing will be heard of any of them. */
  end(error: HoldfastError): void {
    this.takeFront()?.finish(error);
    for (const process of this.#beside.values()) process.finish(error);
    this.#beside.clear();
  }

  #find(id: string | null | undefined): SandboxProcess | undefined {
    return id == null ? this.#front : this.#beside.get(id);
  }
}
