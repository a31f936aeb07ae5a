/** Sandboxes that can be frozen and brought back. */

export * from "./errors.js";
export type { Files } from "./files.js";
export { OutputStream } from "./output.js";
export { SandboxProcess } from "./process.js";
export { Sandbox } from "./sandbox.js";
export type { Socket, SocketFactory, SocketOptions } from "./socket.js";
export {
  type CallOptions,
  type CheckpointInfo,
  type CheckpointOptions,
  type ConnectOptions,
  type CreateOptions,
  EventType,
  type ExecOptions,
  type Exit,
  type FileEntry,
  type Limits,
  SandboxEvent,
  SandboxState,
} from "./types.js";
