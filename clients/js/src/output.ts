/** A process's output: a ReadableStream of text that can also be iterated, or read to its end. */

export class OutputStream implements AsyncIterable<string> {
  readonly #stream: ReadableStream<string | Uint8Array>;
  #controller!: ReadableStreamDefaultController<string | Uint8Array>;
  #open = true;

  constructor() {
    // Nothing is refused for want of a reader: the server bounds what is under way.
    this.#stream = new ReadableStream(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        cancel: () => {
          this.#open = false;
        },
      },
      { highWaterMark: Number.POSITIVE_INFINITY },
    );
  }

  /** The web stream, to be piped or handed on: text, piece by piece. */
  get readable(): ReadableStream<string> {
    const iterator = this[Symbol.asyncIterator]();
    return new ReadableStream<string>({
      async pull(controller) {
        const { done, value } = await iterator.next();
        if (done) controller.close();
        else controller.enqueue(value);
      },
      async cancel() {
        await iterator.return();
      },
    });
  }

  /** Text as it comes. One reader only; leaving the loop early discards what follows. */
  async *[Symbol.asyncIterator](): AsyncGenerator<string, void, undefined> {
    // A character may be split between two pieces of bytes.
    const decoder = new TextDecoder();
    for await (const piece of this.#pieces()) {
      const text = typeof piece === "string" ? piece : decoder.decode(piece, { stream: true });
      if (text !== "") yield text;
    }
    const rest = decoder.decode();
    if (rest !== "") yield rest;
  }

  /** Everything until the end, as text. */
  async readAll(): Promise<string> {
    const pieces: string[] = [];
    for await (const piece of this) pieces.push(piece);
    return pieces.join("");
  }

  /** Everything until the end, as bytes: those of the process itself when it was run as binary. */
  async readBytes(): Promise<Uint8Array> {
    const encoder = new TextEncoder();
    const pieces: Uint8Array[] = [];
    let size = 0;
    for await (const piece of this.#pieces()) {
      const bytes = typeof piece === "string" ? encoder.encode(piece) : piece;
      pieces.push(bytes);
      size += bytes.length;
    }
    const all = new Uint8Array(size);
    let at = 0;
    for (const piece of pieces) {
      all.set(piece, at);
      at += piece.length;
    }
    return all;
  }

  async *#pieces(): AsyncGenerator<string | Uint8Array, void, undefined> {
    const reader = this.#stream.getReader();
    let ended = false;
    try {
      while (true) {
        const { done, value } = await reader.read();
        if (done) {
          ended = true;
          return;
        }
        yield value;
      }
    } finally {
      // One that failed is no longer there to be cancelled.
      if (!ended && this.#open) await reader.cancel();
      reader.releaseLock();
    }
  }

  /** @internal */
  push(piece: string | Uint8Array): void {
    if (this.#open && piece.length > 0) this.#controller.enqueue(piece);
  }

  /** @internal */
  end(error?: Error): void {
    if (!this.#open) return;
    this.#open = false;
    if (error === undefined) this.#controller.close();
    else this.#controller.error(error);
  }
}
