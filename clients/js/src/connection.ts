/** A connection to a server: frames out, frames in, and how to come back after it broke. */

import { BadInput, ConnectionLost, Denied, type HoldfastError } from "./errors.js";
import { credentials, inBrowser, type Socket, type SocketFactory } from "./socket.js";

const OPEN = 1;
const FIRST_DELAY = 100;
const LONGEST_DELAY = 5_000;
/** How often to try before giving up: about a minute. */
const ATTEMPTS = 16;

/** Milliseconds before an attempt, counted from 0: twice as long each time, never two alike. */
export function delayBefore(attempt: number, random: () => number = Math.random): number {
  const longest = Math.min(LONGEST_DELAY, FIRST_DELAY * 2 ** attempt);
  return longest * (0.5 + random() / 2);
}

/** The server's address as a WebSocket's. Throws BadInput. */
export function socketUrl(url: string, path: string): string {
  let parsed: URL;
  try {
    parsed = new URL(url);
  } catch {
    throw new BadInput(`not a server's address: ${url}`, { hint: "such as http://127.0.0.1:8787" });
  }
  const scheme = { "http:": "ws:", "https:": "wss:", "ws:": "ws:", "wss:": "wss:" }[
    parsed.protocol
  ];
  if (scheme === undefined) {
    throw new BadInput(`not a server's address: ${url}`, { hint: "http, https, ws or wss" });
  }
  const base = parsed.pathname.replace(/\/+$/, "");
  return `${scheme}//${parsed.host}${base}${path}`;
}

export interface Tokens {
  server?: string | undefined;
  sandbox?: string | undefined;
}

export interface Listener {
  handleMessage(data: string): void;
  handleClose(code: number, reason: string): void;
}

export class Connection {
  readonly url: string;
  readonly tokens: Tokens;
  /** What the server's log calls everything that comes over this connection. */
  readonly requestId: string = crypto.randomUUID();
  readonly #factory: SocketFactory;
  readonly #listener: Listener;
  readonly #cookies = new Map<string, string>();
  #socket: Socket | undefined;
  #left = false;

  constructor(url: string, tokens: Tokens, factory: SocketFactory, listener: Listener) {
    this.url = url;
    this.tokens = tokens;
    this.#factory = factory;
    this.#listener = listener;
  }

  /** Connect. Rejects with ConnectionLost or Denied; then the listener is told nothing. */
  async open(path: string): Promise<void> {
    const options = credentials(this.tokens, inBrowser());
    options.headers["x-request-id"] = this.requestId;
    if (this.#cookies.size > 0) {
      // A load balancer finds the same server again by what it gave us.
      options.headers.cookie = [...this.#cookies]
        .map(([name, value]) => `${name}=${value}`)
        .join("; ");
    }
    const socket = await this.#factory(socketUrl(this.url, path), options, (cookie) =>
      this.#remember(cookie),
    );
    if (this.#left) {
      // Whoever wanted it has gone while the way was looked for: nothing may begin at its end.
      socket.close(1000);
      throw new ConnectionLost("the connection was given up before it was made");
    }
    this.#socket = socket;
    await new Promise<void>((resolve, reject) => {
      let opened = false;
      socket.onopen = () => {
        opened = true;
        resolve();
      };
      socket.onerror = (event) => {
        if (!opened) reject(this.#unreachable((event as { message?: string }).message));
      };
      socket.onmessage = (event) => {
        if (this.#socket === socket && typeof event.data === "string") {
          this.#listener.handleMessage(event.data);
        }
      };
      socket.onclose = (event) => {
        if (this.#socket !== socket) return; // one that was left behind
        this.#socket = undefined;
        if (opened) this.#listener.handleClose(event.code, event.reason);
        else reject(this.#unreachable(event.reason));
      };
      // It may have been quicker than we were.
      if (socket.readyState === OPEN) socket.onopen({});
      if (socket.readyState > OPEN) reject(this.#unreachable(undefined));
    });
  }

  /** Open it again, with patience, and say hello. Rejects with the reason of the last attempt. */
  async reopen(path: string, hello: () => object, wanted: () => boolean): Promise<void> {
    for (let attempt = 0; ; attempt += 1) {
      await new Promise((resolve) => setTimeout(resolve, delayBefore(attempt)));
      if (!wanted()) return;
      try {
        await this.open(path);
        this.send(hello());
        return;
      } catch (error) {
        if (!wanted()) return;
        if (attempt + 1 >= ATTEMPTS || error instanceof Denied) throw error;
      }
    }
  }

  /** Send a frame. Throws ConnectionLost when there is nobody to send it to. */
  send(frame: object): void {
    if (this.#socket === undefined || this.#socket.readyState !== OPEN) {
      throw new ConnectionLost("the connection to the server is broken", {
        hint: "it comes back by itself unless enableAutoReconnect is false; try again",
      });
    }
    // A browser sets no headers, so there each message says whose it is.
    const named = inBrowser() ? { request_id: this.requestId, ...frame } : frame;
    this.#socket.send(JSON.stringify(named));
  }

  /** Hang up. The listener is not told: it is the one who asked. */
  close(code = 1000, reason = ""): void {
    this.#left = true;
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.close(code, reason);
  }

  #remember(cookie: string): void {
    const pair = cookie.split(";", 1)[0] ?? "";
    const at = pair.indexOf("=");
    if (at > 0) this.#cookies.set(pair.slice(0, at).trim(), pair.slice(at + 1).trim());
  }

  #unreachable(why: string | undefined): HoldfastError {
    const said = why ? `: ${why}` : "";
    // Only `ws` tells what a server answered; the platforms' own sockets keep it to themselves.
    if (/\b40[13]$/.test(said)) {
      return new Denied(`${this.url} does not let us in${said}`, {
        hint: "give the token that the server printed, as `token`",
      });
    }
    return new ConnectionLost(`${this.url} does not let us in${said}`, {
      hint: "is the server running, and is the token the one it printed?",
    });
  }
}
