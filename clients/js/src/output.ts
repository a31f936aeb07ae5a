/** A process's output: a ReadableStream of text that can be iterated everywhere, or read whole. */

import type { CallOptions } from "./types.js";
import { checkWanted, within } from "./waiting.js";

type Piece = string | Uint8Array;

export class OutputStream extends ReadableStream<string> {
  readonly #pieces: Pieces;

  /** @internal Made with a process. */
  constructor() {
    const pieces = new Pieces();
    // A character may be split between two pieces of bytes.
    const decoder = new TextDecoder();
    const pull = async (controller: ReadableStreamDefaultController<string>) => {
      let text = "";
      let piece: Piece | undefined;
      do {
        piece = await pieces.next();
        if (typeof piece === "string") text = piece;
        else text = decoder.decode(piece, { stream: piece !== undefined });
      } while (text === "" && piece !== undefined);
      if (text !== "") controller.enqueue(text);
      if (piece === undefined) controller.close();
    };
    // Pieces wait as they came until somebody reads, so that `readBytes` still has the bytes. None
    // is refused for want of a reader: the server bounds what is under way.
    super({ pull, cancel: () => pieces.discard() }, { highWaterMark: 0 });
    this.#pieces = pieces;
  }

  /** Text as it comes. One reader only; leaving the loop early discards what follows. */
  override async *[Symbol.asyncIterator](): AsyncGenerator<string, undefined, undefined> {
    // Not every browser's streams can be iterated.
    const reader = this.getReader();
    let ended = false;
    try {
      while (true) {
        const { done, value } = await reader.read().catch((error: unknown) => {
          ended = true;
          throw error;
        });
        ended = done;
        if (done) return;
        yield value;
      }
    } finally {
      if (!ended) await reader.cancel();
      reader.releaseLock();
    }
  }

  /** Everything until the end, as text. Whoever gives up discards it; the process goes on. */
  async readAll(options: CallOptions = {}): Promise<string> {
    checkWanted(options);
    const reader = this.getReader();
    const read = async () => {
      const pieces: string[] = [];
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return pieces.join("");
        pieces.push(value);
      }
    };
    return this.#whole(read(), reader, options);
  }

  /** Everything until the end, as bytes: those of the process itself when it was run as binary. */
  async readBytes(options: CallOptions = {}): Promise<Uint8Array> {
    checkWanted(options);
    const reader = this.getReader(); // nobody else reads meanwhile
    return this.#whole(this.#pieces.all().then(joined), reader, options);
  }

  async #whole<T>(
    reading: Promise<T>,
    reader: ReadableStreamDefaultReader<string>,
    options: CallOptions,
  ): Promise<T> {
    try {
      return await within(reading, "the output", options, () => void reader.cancel());
    } finally {
      reader.releaseLock();
    }
  }

  /** @internal */
  push(piece: Piece): void {
    this.#pieces.push(piece);
  }

  /** @internal What came before is still read; then the error, if there is one. */
  end(error?: Error): void {
    this.#pieces.end(error);
  }
}

/** Pieces on their way from the connection to a reader. */
class Pieces {
  #waiting: Piece[] = [];
  #ended = false;
  #error: Error | undefined;
  #wake: (() => void) | undefined;

  push(piece: Piece): void {
    if (this.#ended || piece.length === 0) return;
    this.#waiting.push(piece);
    this.#wake?.();
  }

  end(error?: Error): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#error = error;
    this.#wake?.();
  }

  discard(): void {
    this.#waiting = [];
    this.end();
  }

  /** The next one; undefined at the end. Rejects with the error that ended it. */
  async next(): Promise<Piece | undefined> {
    while (this.#waiting.length === 0 && !this.#ended) {
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
    const piece = this.#waiting.shift();
    if (piece === undefined && this.#error !== undefined) throw this.#error;
    return piece;
  }

  async all(): Promise<Piece[]> {
    const all: Piece[] = [];
    for (let piece = await this.next(); piece !== undefined; piece = await this.next()) {
      all.push(piece);
    }
    return all;
  }
}

function joined(pieces: Piece[]): Uint8Array {
  const encoder = new TextEncoder();
  const parts = pieces.map((piece) => (typeof piece === "string" ? encoder.encode(piece) : piece));
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}
