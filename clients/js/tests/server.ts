/** A server at the other end of a scripted socket: a test says what it says, frame by frame. */

import type { Socket, SocketFactory, SocketOptions } from "../src/index.js";

type Frame = Record<string, unknown>;

/** Lets everything that is ready to run run. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await Promise.resolve();
}

class ScriptedSocket implements Socket {
  readyState = 0;
  onopen: ((event: unknown) => void) | null = null;
  onmessage: ((event: { data: unknown }) => void) | null = null;
  onerror: ((event: unknown) => void) | null = null;
  onclose: ((event: { code: number; reason: string }) => void) | null = null;
  readonly sent: Frame[] = [];
  closedWith: number | undefined;

  constructor(
    readonly url: string,
    readonly options: SocketOptions,
  ) {}

  send(data: string): void {
    this.sent.push(JSON.parse(data) as Frame);
  }

  close(code = 1000): void {
    this.closedWith ??= code;
    this.readyState = 3;
  }
}

export class ScriptedServer {
  readonly sockets: ScriptedSocket[] = [];
  /** Whether the next connections are refused. */
  refuses = false;
  cookie: string | undefined;

  readonly factory: SocketFactory = (url, options, onCookie) => {
    const socket = new ScriptedSocket(url, options);
    this.sockets.push(socket);
    queueMicrotask(() => {
      if (this.refuses) {
        socket.readyState = 3;
        socket.onerror?.({ message: "ECONNREFUSED" });
        socket.onclose?.({ code: 1006, reason: "" });
        return;
      }
      if (this.cookie !== undefined) onCookie(this.cookie);
      socket.readyState = 1;
      socket.onopen?.({});
    });
    return socket;
  };

  get socket(): ScriptedSocket {
    const last = this.sockets.at(-1);
    if (last === undefined) throw new Error("nobody has connected");
    return last;
  }

  /** The frames that the client sent on its last connection. */
  get frames(): Frame[] {
    return this.socket.sent;
  }

  get last(): Frame {
    return this.frames.at(-1) ?? {};
  }

  say(...frames: (Frame | string)[]): void {
    for (const frame of frames) {
      const data = typeof frame === "string" ? status(frame) : frame;
      this.socket.onmessage?.({ data: JSON.stringify(data) });
    }
  }

  raw(data: unknown): void {
    this.socket.onmessage?.({ data });
  }

  hangUp(code = 1006, reason = ""): void {
    this.socket.readyState = 3;
    this.socket.onclose?.({ code, reason });
  }
}

/** A status by its short name. */
export function status(name: string, message = ""): Frame {
  return { event: "status_update", status: `SANDBOX_${name}`, message };
}

export function error(message: string, more: Frame = {}): Frame {
  return { event: "error", message, ...more };
}

export const PASS = { event: "sandbox_id", sandbox_id: "sb1", sandbox_token: "secret" };
