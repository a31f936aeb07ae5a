/** Files inside a sandbox. */

import { encoded, fromBase64 } from "./encoding.js";
import type { FileEntry, FilesEvent } from "./messages.js";
import type { CallOptions } from "./types.js";

type Ask = (fields: object, options: CallOptions) => Promise<FilesEvent>;

export class Files {
  readonly #ask: Ask;

  /** @internal It is a sandbox's `files`. */
  constructor(ask: Ask) {
    this.#ask = ask;
  }

  /** A file's bytes. */
  async read(path: string, options: CallOptions = {}): Promise<Uint8Array> {
    const answer = await this.#ask({ verb: "read", path, encoding: "base64" }, options);
    const data = answer.data ?? "";
    return answer.encoding === "base64" ? fromBase64(data) : new TextEncoder().encode(data);
  }

  /** A file as UTF-8 text. */
  async readText(path: string, options: CallOptions = {}): Promise<string> {
    return new TextDecoder().decode(await this.read(path, options));
  }

  /** Write a file, with the folders that lead to it. */
  async write(path: string, data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    await this.#ask({ verb: "write", path, ...encoded(data) }, options);
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
}
