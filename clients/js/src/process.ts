/** One process in a sandbox: its output, its input, and how it ended. */

import { encoded, fromBase64 } from "./encoding.js";
import { type HoldfastError, UsageError } from "./errors.js";
import type { ExitEvent, OutputEvent } from "./messages.js";
import { OutputStream } from "./output.js";
import type { CallOptions, Exit } from "./types.js";
import { Waiting, within } from "./waiting.js";

/** What a process needs of whoever it runs in. */
export interface ProcessHost {
  send(frame: object): void;
  killProcess(process: SandboxProcess, options: CallOptions): Promise<void>;
}

export class SandboxProcess {
  readonly stdout = new OutputStream();
  readonly stderr = new OutputStream();
  /** Undefined for the one execution in the foreground. */
  readonly id: string | undefined;
  /** Bytes of output that could not be given because the connection was broken for too long. */
  lost = 0;
  readonly #host: ProcessHost;
  readonly #ended = new Waiting<Exit>();
  #exit: Exit | undefined;
  #offset = 0;
  #open = true;

  /** @internal Made by `Sandbox.exec`. */
  constructor(host: ProcessHost, id?: string) {
    this.#host = host;
    this.id = id;
  }

  /** How it ended; undefined while it runs. */
  get exit(): Exit | undefined {
    return this.#exit;
  }

  /** Wait for its end. Its output may still be read afterwards. */
  wait(options: CallOptions = {}): Promise<Exit> {
    return within(this.#ended.promise, "the process", options);
  }

  /** Write to its standard input. Throws UsageError when it has ended. */
  writeToStdin(data: string | Uint8Array): void {
    this.#input(encoded(data));
  }

  /** End its standard input. */
  closeStdin(): void {
    this.#input({ eof: true });
  }

  /** Tell it that its terminal has another size. */
  resize(rows: number, columns: number): void {
    this.#check();
    this.#host.send({ action: "resize", rows, columns, ...this.#named() });
  }

  /** Kill it, with all processes it started. One that has ended already is fine. */
  async kill(options: CallOptions = {}): Promise<void> {
    if (!this.#open) return;
    await this.#host.killProcess(this, options);
  }

  #input(fields: object): void {
    this.#check();
    this.#host.send({ event: "stdin", ...fields, ...this.#named() });
  }

  #named(): { process_id?: string } {
    return this.id === undefined ? {} : { process_id: this.id };
  }

  #check(): void {
    if (!this.#open) throw new UsageError("the process has ended");
  }

  /** @internal How much of its output has arrived, for a connection that must go on behind it. */
  get offset(): number {
    return this.#offset;
  }

  /** @internal */
  handleOutput(event: OutputEvent): void {
    const stream = event.event === "stdout" ? this.stdout : this.stderr;
    this.lost += event.gap ?? 0;
    if (event.offset !== undefined) this.#offset = event.offset;
    stream.push(event.encoding === "base64" ? fromBase64(event.data) : event.data);
  }

  /** @internal The server says how it ended; all its output came before. */
  handleExit(event: Partial<ExitEvent>): void {
    const { code = null, signal = null, reason = null } = event;
    this.#exit ??= { code, signal, reason };
  }

  /** @internal */
  finish(error?: HoldfastError): void {
    if (!this.#open) return;
    this.#open = false;
    this.stdout.end(error);
    this.stderr.end(error);
    if (error !== undefined) {
      this.#ended.reject(error);
      return;
    }
    this.#exit ??= { code: null, signal: null, reason: null }; // the server did not say
    this.#ended.resolve(this.#exit);
  }
}
