/** What users name: events, states and options. The wire's own types are in `messages.ts`. */

import type { Limits } from "./messages.js";
import type { SocketFactory } from "./socket.js";

export type { FileEntry, Limits } from "./messages.js";
export { SandboxEvent } from "./messages.js";

/** The kinds of frames that a server sends. */
export const EventType = {
  STATUS_UPDATE: "status_update",
  SANDBOX_ID: "sandbox_id",
  STDOUT: "stdout",
  STDERR: "stderr",
  ERROR: "error",
  STARTED: "started",
  EXIT: "exit",
  CHECKPOINT: "checkpoint",
  FORK: "fork",
  ROLLBACK: "rollback",
  SNAPSHOT: "snapshot",
  TEMPLATE: "template",
  FILES: "files",
} as const;
export type EventType = (typeof EventType)[keyof typeof EventType];

/** Where a sandbox stands for this client. The last five are for good. */
export const SandboxState = {
  CONNECTING: "connecting",
  CREATING: "creating",
  RESTORING: "restoring",
  RUNNING: "running",
  EXECUTING: "executing",
  CHECKPOINTING: "checkpointing",
  RECONNECTING: "reconnecting",
  KILLING: "killing",
  CHECKPOINTED: "checkpointed",
  KILLED: "killed",
  DELETED: "deleted",
  DETACHED: "detached",
  FAILED: "failed",
} as const;
export type SandboxState = (typeof SandboxState)[keyof typeof SandboxState];

/** How long one call may take. */
export interface CallOptions {
  signal?: AbortSignal | undefined;
  /** Milliseconds. */
  timeout?: number | undefined;
}

export interface ConnectOptions extends CallOptions {
  /** The server's token. */
  token?: string | undefined;
  /** Whether to come back when the connection breaks; true unless said otherwise. */
  enableAutoReconnect?: boolean | undefined;
  /** Told of every status, with the server's message for people. */
  onStatus?: ((status: string, message: string) => void) | undefined;
  /** Another way to open a WebSocket. */
  socket?: SocketFactory | undefined;
}

export interface CreateOptions extends ConnectOptions {
  /** Seconds without any traffic after which the server ends the sandbox. */
  idleTimeout?: number | undefined;
  enableCheckpoint?: boolean | undefined;
  /** The same as `enableCheckpoint`, under the name that older clients use. */
  enableSandboxCheckpoint?: boolean | undefined;
  enableIdleTimeoutAutoCheckpoint?: boolean | undefined;
  enableSandboxHandoff?: boolean | undefined;
  filesystemSnapshotName?: string | undefined;
  engine?: string | undefined;
  name?: string | undefined;
  image?: string | undefined;
  limits?: Limits | undefined;
  network?: boolean | undefined;
  /** No network at all, not even a loopback. */
  offline?: boolean | undefined;
  /** Ports of its loopback that are reached through the server. */
  ports?: number[] | undefined;
  /** Domains that its programs reach through the server's proxy: name, *.name or name:port. */
  egress?: string[] | undefined;
  /** Begin as the template of this name, with what runs in it. */
  template?: string | undefined;
}

export interface ExecOptions extends CallOptions {
  env?: Record<string, string> | undefined;
  cwd?: string | undefined;
  /** Run it in a terminal. */
  pty?: boolean | { rows: number; columns: number } | undefined;
  /** Python only: keep variables between executions. */
  session?: boolean | undefined;
  /** False: the program sees an empty input. */
  stdin?: boolean | undefined;
  /** Give the output's bytes untouched, for what is no text. */
  binary?: boolean | undefined;
  /** Beside the one execution in the foreground: there may be any number of these. */
  background?: boolean | undefined;
}

export interface CheckpointOptions extends CallOptions {
  reason?: string | undefined;
  /** Go on afterwards; otherwise the sandbox is gone until somebody attaches to it. */
  leaveRunning?: boolean | undefined;
  /** Also while something runs, if the engine can. */
  duringExecution?: boolean | undefined;
}

/** A checkpoint, as its maker learns of it. A server without identifiers leaves them out. */
export interface CheckpointInfo {
  id: string | undefined;
  short: string | undefined;
  subject: string | undefined;
  sizeBytes: number | undefined;
  storedBytes: number | undefined;
  pauseMs: number | undefined;
}

/** How a process ended: with a code, or by a signal. */
export interface Exit {
  code: number | null;
  signal: number | null;
  /** Why, when a limit ended it. */
  reason: string | null;
}
