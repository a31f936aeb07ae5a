/**
 * Finds a WebSocket: the platform's own, or the package `ws` where there is none (Node 20).
 *
 * The server's token never stands in a URL, where logs and proxies would see it: it is a header
 * where headers can be set, and a subprotocol in browsers, which cannot set any.
 */

import { Unsupported } from "./errors.js";

/** What is needed of a WebSocket, so that a test can script one. */
export interface Socket {
  readonly readyState: number;
  send(data: string): void;
  close(code?: number, reason?: string): void;
  onopen: ((event: unknown) => void) | null;
  onmessage: ((event: { data: unknown }) => void) | null;
  onerror: ((event: unknown) => void) | null;
  onclose: ((event: { code: number; reason: string }) => void) | null;
}

export interface SocketOptions {
  protocols: string[];
  headers: Record<string, string>;
}

/** Opens a connection; the server's `Set-Cookie`, where it can be seen, goes to `onCookie`. */
export type SocketFactory = (
  url: string,
  options: SocketOptions,
  onCookie: (cookie: string) => void,
) => Socket | Promise<Socket>;

export const PROTOCOL = "holdfast.v1";

/** Where the tokens go: headers in Node, Bun and Deno, subprotocols in a browser. */
export function credentials(
  tokens: { server?: string | undefined; sandbox?: string | undefined },
  browser: boolean,
): SocketOptions {
  const protocols = [PROTOCOL];
  const headers: Record<string, string> = {};
  if (tokens.server !== undefined) {
    if (browser) protocols.push(`holdfast.token.${tokens.server}`);
    else headers.authorization = `Bearer ${tokens.server}`;
  }
  if (tokens.sandbox !== undefined) protocols.push(`holdfast.sandbox.${tokens.sandbox}`);
  return { protocols, headers };
}

export function inBrowser(): boolean {
  return typeof document !== "undefined" || "WorkerGlobalScope" in globalThis;
}

/** The way to open sockets on this platform. Throws Unsupported where there is none. */
export const openSocket: SocketFactory = async (url, options, onCookie) => {
  const platform = (globalThis as { WebSocket?: typeof WebSocket }).WebSocket;
  if (inBrowser() && platform !== undefined) {
    return new platform(url, options.protocols) as unknown as Socket;
  }
  const ws = await findWs();
  if (ws !== undefined) {
    const socket = new ws(url, options.protocols, { headers: options.headers });
    socket.on("upgrade", (response: { headers: Record<string, string[] | undefined> }) => {
      for (const cookie of response.headers["set-cookie"] ?? []) onCookie(cookie);
    });
    return socket as unknown as Socket;
  }
  if (platform !== undefined) {
    // Node 22, Bun and Deno take headers in the second argument, which the standard lacks.
    const made = { protocols: options.protocols, headers: options.headers };
    return new platform(url, made as unknown as string[]) as unknown as Socket;
  }
  throw new Unsupported("this platform has no WebSocket", {
    hint: "npm install ws, or use Node 22 or newer",
  });
};

type Ws = new (
  url: string,
  protocols: string[],
  options: { headers: Record<string, string> },
) => { on(event: string, listener: (response: never) => void): void };

async function findWs(): Promise<Ws | undefined> {
  try {
    // Named in a variable, so that bundlers for browsers leave it alone.
    const name = "ws";
    const found = (await import(/* @vite-ignore */ name)) as { WebSocket?: Ws; default?: Ws };
    return found.WebSocket ?? found.default;
  } catch {
    return undefined; // it is optional: not installed is an answer
  }
}
