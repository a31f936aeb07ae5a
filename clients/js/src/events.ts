/** What a server sends. */

import type {
  CheckpointEvent,
  ErrorEvent,
  ExitEvent,
  FilesEvent,
  ForkEvent,
  OutputEvent,
  RollbackEvent,
  SandboxIdEvent,
  SnapshotEvent,
  StartedEvent,
  StatusUpdate,
} from "./messages.js";

export type ServerEvent =
  | StatusUpdate
  | SandboxIdEvent
  | OutputEvent
  | ErrorEvent
  | StartedEvent
  | ExitEvent
  | CheckpointEvent
  | ForkEvent
  | RollbackEvent
  | SnapshotEvent
  | FilesEvent;

/** The event in a frame; undefined for what no server of this protocol sends. */
export function parseEvent(data: string): ServerEvent | undefined {
  try {
    const event: unknown = JSON.parse(data);
    return typeof event === "object" && event !== null && "event" in event
      ? (event as ServerEvent)
      : undefined;
  } catch {
    return undefined; // nothing can be done about it
  }
}
