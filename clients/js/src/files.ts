/** Files inside a sandbox. */

import { encoded, fromBase64 } from "./encoding.js";
import { Conflict } from "./errors.js";
import type { FileEntry, FilesEvent } from "./messages.js";
import type { CallOptions } from "./types.js";
import { shared } from "./waiting.js";

/** Bytes in one frame, which may be twice as long. */
const PIECE = 4 << 20;
/** Milliseconds for removing what a write that failed has left. */
const CLEANING = 5_000;

type Ask = (fields: object, options: CallOptions) => Promise<FilesEvent>;

export class Files {
  readonly #ask: Ask;

  /** @internal It is a sandbox's `files`. */
  constructor(ask: Ask) {
    this.#ask = ask;
  }

  /** A file's bytes. Throws Conflict when it changes while it is read. */
  async read(path: string, options: CallOptions = {}): Promise<Uint8Array> {
    const left = shared(options);
    const first = await this.#piece(path, 0, left());
    const whole = first.size ?? 0; // a server without pieces sends all at once
    if (first.bytes.length >= whole) return first.bytes;
    const all = new Uint8Array(whole);
    all.set(first.bytes);
    for (let at = first.bytes.length; at < whole; ) {
      const next = await this.#piece(path, at, left());
      const same = next.size === whole && next.modified === first.modified;
      if (!same || next.bytes.length === 0) {
        throw new Conflict(`${path} changed while it was read`, { hint: "read it again" });
      }
      all.set(next.bytes, at);
      at += next.bytes.length;
    }
    return all;
  }

  /** A file as UTF-8 text. */
  async readText(path: string, options: CallOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** Write a file as a whole or not at all, with the folders that lead to it. */
  async write(path: string, data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    if (bytes.length <= PIECE) {
      await this.#ask({ verb: "write", path, ...encoded(bytes) }, options);
      return;
    }
    const left = shared(options);
    const part = `${path}.holdfast-part-${Math.random().toString(36).slice(2)}`;
    try {
      for (let offset = 0; offset < bytes.length; offset += PIECE) {
        const piece = encoded(bytes.subarray(offset, offset + PIECE));
        await this.#ask({ verb: "write", path: part, offset, ...piece }, left());
      }
      await this.rename(part, path, left());
    } catch (error) {
      // Whatever ended it says more than a part that could not be removed.
      await this.remove(part, { timeout: CLEANING }).catch(() => {});
      throw error;
    }
  }

  /** Give a file or folder another path, in one step; a file that was there is replaced. */
  async rename(path: string, to: string, options: CallOptions = {}): Promise<void> {
    await this.#ask({ verb: "rename", path, to }, options);
  }

  async list(path: string, options: CallOptions = {}): Promise<FileEntry[]> {
    return (await this.#ask({ verb: "list", path }, options)).entries ?? [];
  }

  /** Remove a file, or a folder with all that is in it. */
  async remove(path: string, options: CallOptions = {}): Promise<void> {
    await this.#ask({ verb: "remove", path }, options);
  }

  async mkdir(path: string, options: CallOptions = {}): Promise<void> {
    await this.#ask({ verb: "mkdir", path }, options);
  }

  async #piece(path: string, offset: number, options: CallOptions) {
    const fields = { verb: "read", path, encoding: "base64", offset, size: PIECE };
    const { data, encoding, size, modified } = await this.#ask(fields, options);
    const text = data ?? "";
    const bytes = encoding === "base64" ? fromBase64(text) : new TextEncoder().encode(text);
    return { bytes, size, modified };
  }
}
