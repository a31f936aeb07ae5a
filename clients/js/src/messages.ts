// Generated from spec/messages.schema.json by `npm run types`. Do not edit.

export type Messages =
  | Status
  | Encoding
  | Limits
  | CreateRequest
  | CheckpointRequest
  | SnapshotRequest
  | SaveTemplateRequest
  | KillProcessRequest
  | KillSandboxRequest
  | ReconnectRequest
  | ForkRequest
  | RollbackRequest
  | FilesRequest
  | ResizeRequest
  | WindowRequest
  | StdinEvent
  | ExecuteRequest
  | StatusUpdate
  | SandboxIdEvent
  | OutputEvent
  | ErrorEvent
  | StartedEvent
  | ExitEvent
  | CheckpointEvent
  | SandboxPass
  | ForkEvent
  | RollbackEvent
  | SnapshotEvent
  | TemplateEvent
  | FileEntry
  | FilesEvent;
/**
 * Where a sandbox, or the work on it, stands.
 */
export type Status =
  | "SANDBOX_CREATING"
  | "SANDBOX_CREATION_ERROR"
  | "SANDBOX_RUNNING"
  | "SANDBOX_RESTORING"
  | "SANDBOX_RESTORE_ERROR"
  | "SANDBOX_NOT_FOUND"
  | "SANDBOX_IN_USE"
  | "SANDBOX_PERMISSION_DENIAL_ERROR"
  | "SANDBOX_ERROR"
  | "SANDBOX_EXECUTION_RUNNING"
  | "SANDBOX_EXECUTION_DONE"
  | "SANDBOX_EXECUTION_ERROR"
  | "SANDBOX_EXECUTION_UNSUPPORTED_LANGUAGE_ERROR"
  | "SANDBOX_EXECUTION_IN_PROGRESS_ERROR"
  | "SANDBOX_EXECUTION_FORCE_KILLED"
  | "SANDBOX_EXECUTION_FORCE_KILL_ERROR"
  | "SANDBOX_STDIN_ERROR"
  | "SANDBOX_CHECKPOINTING"
  | "SANDBOX_CHECKPOINTED"
  | "SANDBOX_CHECKPOINT_ERROR"
  | "SANDBOX_FILESYSTEM_SNAPSHOT_CREATING"
  | "SANDBOX_FILESYSTEM_SNAPSHOT_CREATED"
  | "SANDBOX_FILESYSTEM_SNAPSHOT_ERROR"
  | "SANDBOX_KILLING"
  | "SANDBOX_KILLED"
  | "SANDBOX_KILL_ERROR"
  | "SANDBOX_DELETING"
  | "SANDBOX_DELETED"
  | "SANDBOX_LOCK_ACQUIRING"
  | "SANDBOX_LOCK_ACQUIRED"
  | "SANDBOX_LOCK_RELEASE_REQUESTED"
  | "SANDBOX_LOCK_RELEASING"
  | "SANDBOX_LOCK_RELEASED"
  | "SANDBOX_LOCK_RENEWAL_ERROR";
/**
 * How bytes are written in `data`: as text, or base64 for what is no text.
 */
export type Encoding = "text" | "base64";

/**
 * What a sandbox may use at most. What is left out is the server's default.
 */
export interface Limits {
  memory_bytes?: number | null;
  cpus?: number | null;
  processes?: number | null;
  disk_bytes?: number | null;
  /**
   * how long one execution may run
   */
  seconds?: number | null;
}
/**
 * The first frame on /create: how the sandbox is to be.
 */
export interface CreateRequest {
  /**
   * seconds without a frame in either direction
   */
  idle_timeout?: number;
  enable_checkpoint?: boolean;
  enable_idle_timeout_auto_checkpoint?: boolean;
  enable_sandbox_handoff?: boolean;
  filesystem_snapshot_name?: string | null;
  engine?: string | null;
  /**
   * a name for people; the id stays random
   */
  name?: string | null;
  /**
   * a root that the server knows by this name
   */
  image?: string | null;
  limits?: Limits | null;
  /**
   * the host's network, where the engine can; without it there is a loopback only
   */
  network?: boolean;
  /**
   * no network at all: programs get no socket of one, not even of the loopback
   */
  offline?: boolean;
  /**
   * a template that the server knows by this name; root and network are the template's
   */
  template?: string | null;
  /**
   * ports of the loopback inside that are reached through the server
   *
   * @maxItems 32
   */
  ports?: number[];
  /**
   * domains that programs reach through the server's proxy, as name, *.name or name:port
   *
   * @maxItems 256
   */
  egress?: string[];
}
/**
 * Freeze the sandbox.
 */
export interface CheckpointRequest {
  action: "checkpoint";
  reason?: string;
  leave_running?: boolean;
  during_execution?: boolean;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * Keep the files under a name, for new sandboxes.
 */
export interface SnapshotRequest {
  action: "snapshot_filesystem";
  name: string;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * Keep the sandbox, with what runs in it, under a name, for new sandboxes.
 */
export interface SaveTemplateRequest {
  action: "save_template";
  name: string;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * Kill the running execution and its process group.
 */
export interface KillProcessRequest {
  action: "kill_process";
  /**
   * a process besides the foreground execution
   */
  process_id?: string | null;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * End the sandbox.
 */
export interface KillSandboxRequest {
  action: "kill_sandbox";
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * Go on where the last connection broke.
 */
export interface ReconnectRequest {
  action: "reconnect";
  /**
   * the last offset seen
   */
  offset?: number | null;
  /**
   * the last offset seen of each process beside the execution
   */
  offsets?: {
    [k: string]: number;
  };
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * Make isolated live copies.
 */
export interface ForkRequest {
  action: "fork";
  count?: number;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * Go back to an earlier checkpoint, keeping the id.
 */
export interface RollbackRequest {
  action: "rollback";
  /**
   * default: the head's parent
   */
  checkpoint?: string | null;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * Look at or change files inside.
 */
export interface FilesRequest {
  action: "files";
  verb: "read" | "write" | "list" | "remove" | "mkdir" | "rename";
  path: string;
  data?: string | null;
  encoding?: Encoding;
  /**
   * read: begin here; write: the file has so many bytes, and these follow
   */
  offset?: number | null;
  /**
   * read: at most so many bytes
   */
  size?: number | null;
  /**
   * rename: the new path
   */
  to?: string | null;
  path_encoding?: Encoding;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * The terminal has another size.
 */
export interface ResizeRequest {
  action: "resize";
  rows: number;
  columns: number;
  /**
   * a process besides the foreground execution
   */
  process_id?: string | null;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * How far the output of a process may be sent.
 */
export interface WindowRequest {
  action: "window";
  /**
   * pieces that begin at this offset or behind it wait
   */
  until: number;
  /**
   * a process besides the foreground execution
   */
  process_id?: string | null;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * Input for the execution; without data it is the end of input when `eof` says so.
 */
export interface StdinEvent {
  event: "stdin";
  data?: string | null;
  eof?: boolean;
  encoding?: Encoding;
  /**
   * a process besides the foreground execution
   */
  process_id?: string | null;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * Run code, or a program by its arguments.
 */
export interface ExecuteRequest {
  language?: string | null;
  code?: string | null;
  /**
   * @minItems 1
   * @maxItems 10000
   */
  argv?: [string, ...string[]] | null;
  env?: {
    [k: string]: string;
  };
  cwd?: string | null;
  pty?: boolean;
  rows?: number;
  columns?: number;
  /**
   * false: the program sees an empty input
   */
  stdin?: boolean;
  /**
   * python only: keep variables between executions
   */
  session?: boolean;
  /**
   * how far its output may be sent, until a WindowRequest says more; null: all of it
   */
  window?: number | null;
  encoding?: Encoding;
  /**
   * a process besides the foreground execution
   */
  process_id?: string | null;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * A step of a flow; `message` is for the user.
 */
export interface StatusUpdate {
  event: "status_update";
  status: Status;
  message?: string;
}
/**
 * What it takes to attach.
 */
export interface SandboxIdEvent {
  event: "sandbox_id";
  sandbox_id: string;
  sandbox_token: string;
}
/**
 * What a process wrote.
 */
export interface OutputEvent {
  event: "stdout" | "stderr";
  data: string;
  /**
   * bytes of both streams up to the end of this piece
   */
  offset?: number;
  /**
   * bytes before this piece that were lost
   */
  gap?: number;
  encoding?: Encoding;
  /**
   * a process besides the foreground execution
   */
  process_id?: string | null;
}
/**
 * What went wrong, in words.
 */
export interface ErrorEvent {
  event: "error";
  message: string;
  kind?: string;
  hint?: string | null;
  /**
   * a process besides the foreground execution
   */
  process_id?: string | null;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * A process besides the foreground execution has begun.
 */
export interface StartedEvent {
  event: "started";
  /**
   * a process besides the foreground execution
   */
  process_id?: string | null;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * How a process ended: by itself with a code, or by a signal.
 */
export interface ExitEvent {
  event: "exit";
  code?: number | null;
  signal?: number | null;
  /**
   * why, when a limit ended it
   */
  reason?: string | null;
  /**
   * a process besides the foreground execution
   */
  process_id?: string | null;
}
/**
 * A checkpoint is durable.
 */
export interface CheckpointEvent {
  event: "checkpoint";
  id: string;
  short: string;
  subject: string;
  size_bytes: number;
  stored_bytes: number;
  pause_ms: number;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * A sandbox and its token.
 */
export interface SandboxPass {
  sandbox_id: string;
  sandbox_token: string;
}
/**
 * The copies run.
 */
export interface ForkEvent {
  event: "fork";
  sandboxes: SandboxPass[];
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * The sandbox is as it was.
 */
export interface RollbackEvent {
  event: "rollback";
  checkpoint: string;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * The files are kept under this name.
 */
export interface SnapshotEvent {
  event: "snapshot";
  name: string;
  checkpoint: string;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * New sandboxes can be made from this template.
 */
export interface TemplateEvent {
  event: "template";
  name: string;
  checkpoint: string;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}
/**
 * One name in a folder.
 */
export interface FileEntry {
  name: string;
  kind: "file" | "folder" | "link" | "other";
  size: number;
  mode: number;
  modified: number;
  /**
   * the bytes of a name that is not UTF-8, as base64
   */
  raw?: string | null;
}
/**
 * The answer to a files request.
 */
export interface FilesEvent {
  event: "files";
  verb: string;
  path: string;
  data?: string | null;
  encoding?: Encoding;
  entries?: FileEntry[] | null;
  /**
   * of the whole file that was read from
   */
  size?: number | null;
  /**
   * when the file that was read from was last changed
   */
  modified?: number | null;
  /**
   * comes back in the reply event
   */
  request_id?: string | null;
}

/** Every status by its name. */
export const SandboxEvent = {
  SANDBOX_CREATING: "SANDBOX_CREATING",
  SANDBOX_CREATION_ERROR: "SANDBOX_CREATION_ERROR",
  SANDBOX_RUNNING: "SANDBOX_RUNNING",
  SANDBOX_RESTORING: "SANDBOX_RESTORING",
  SANDBOX_RESTORE_ERROR: "SANDBOX_RESTORE_ERROR",
  SANDBOX_NOT_FOUND: "SANDBOX_NOT_FOUND",
  SANDBOX_IN_USE: "SANDBOX_IN_USE",
  SANDBOX_PERMISSION_DENIAL_ERROR: "SANDBOX_PERMISSION_DENIAL_ERROR",
  SANDBOX_ERROR: "SANDBOX_ERROR",
  SANDBOX_EXECUTION_RUNNING: "SANDBOX_EXECUTION_RUNNING",
  SANDBOX_EXECUTION_DONE: "SANDBOX_EXECUTION_DONE",
  SANDBOX_EXECUTION_ERROR: "SANDBOX_EXECUTION_ERROR",
  SANDBOX_EXECUTION_UNSUPPORTED_LANGUAGE_ERROR: "SANDBOX_EXECUTION_UNSUPPORTED_LANGUAGE_ERROR",
  SANDBOX_EXECUTION_IN_PROGRESS_ERROR: "SANDBOX_EXECUTION_IN_PROGRESS_ERROR",
  SANDBOX_EXECUTION_FORCE_KILLED: "SANDBOX_EXECUTION_FORCE_KILLED",
  SANDBOX_EXECUTION_FORCE_KILL_ERROR: "SANDBOX_EXECUTION_FORCE_KILL_ERROR",
  SANDBOX_STDIN_ERROR: "SANDBOX_STDIN_ERROR",
  SANDBOX_CHECKPOINTING: "SANDBOX_CHECKPOINTING",
  SANDBOX_CHECKPOINTED: "SANDBOX_CHECKPOINTED",
  SANDBOX_CHECKPOINT_ERROR: "SANDBOX_CHECKPOINT_ERROR",
  SANDBOX_FILESYSTEM_SNAPSHOT_CREATING: "SANDBOX_FILESYSTEM_SNAPSHOT_CREATING",
  SANDBOX_FILESYSTEM_SNAPSHOT_CREATED: "SANDBOX_FILESYSTEM_SNAPSHOT_CREATED",
  SANDBOX_FILESYSTEM_SNAPSHOT_ERROR: "SANDBOX_FILESYSTEM_SNAPSHOT_ERROR",
  SANDBOX_KILLING: "SANDBOX_KILLING",
  SANDBOX_KILLED: "SANDBOX_KILLED",
  SANDBOX_KILL_ERROR: "SANDBOX_KILL_ERROR",
  SANDBOX_DELETING: "SANDBOX_DELETING",
  SANDBOX_DELETED: "SANDBOX_DELETED",
  SANDBOX_LOCK_ACQUIRING: "SANDBOX_LOCK_ACQUIRING",
  SANDBOX_LOCK_ACQUIRED: "SANDBOX_LOCK_ACQUIRED",
  SANDBOX_LOCK_RELEASE_REQUESTED: "SANDBOX_LOCK_RELEASE_REQUESTED",
  SANDBOX_LOCK_RELEASING: "SANDBOX_LOCK_RELEASING",
  SANDBOX_LOCK_RELEASED: "SANDBOX_LOCK_RELEASED",
  SANDBOX_LOCK_RENEWAL_ERROR: "SANDBOX_LOCK_RENEWAL_ERROR",
} as const;
export type SandboxEvent = Status;
