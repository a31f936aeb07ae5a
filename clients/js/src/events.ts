/** What a server sends. */

import { isBase64 } from "./encoding.js";
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
  TemplateEvent,
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
  | TemplateEvent
  | FilesEvent;

type Check = (value: unknown) => boolean;
const text: Check = (value) => typeof value === "string";
const number: Check = (value) => typeof value === "number";
const list: Check = (value) => Array.isArray(value);
const maybe =
  (check: Check): Check =>
  (value) =>
    value === undefined || value === null || check(value);

const named = { process_id: maybe(text), request_id: maybe(text) };
const output = { ...named, data: text, encoding: maybe(text), offset: maybe(number) };

/** What is relied on in an event. A server says more, and a newer one more still. */
const FIELDS: Readonly<Record<ServerEvent["event"], Readonly<Record<string, Check>>>> = {
  status_update: { status: text, message: maybe(text) },
  sandbox_id: { sandbox_id: text, sandbox_token: text },
  stdout: { ...output, gap: maybe(number) },
  stderr: { ...output, gap: maybe(number) },
  error: { ...named, message: text, kind: maybe(text), hint: maybe(text) },
  started: named,
  exit: { ...named, code: maybe(number), signal: maybe(number), reason: maybe(text) },
  checkpoint: named,
  fork: { ...named, sandboxes: list },
  rollback: named,
  snapshot: named,
  template: named,
  files: { ...named, data: maybe(text), encoding: maybe(text), entries: maybe(list) },
};

/** The event in a frame; undefined for what no server of this protocol sends. */
export function parseEvent(data: string): ServerEvent | undefined {
  let event: unknown;
  try {
    event = JSON.parse(data);
  } catch {
    return undefined; // nothing can be done about it
  }
  if (typeof event !== "object" || event === null || !("event" in event)) return undefined;
  const fields = Object.hasOwn(FIELDS, String(event.event))
    ? FIELDS[event.event as ServerEvent["event"]]
    : undefined;
  if (fields === undefined) return undefined;
  const given = event as Record<string, unknown>;
  const sound = Object.entries(fields).every(([name, check]) => check(given[name]));
  const readable = given.encoding !== "base64" || given.data == null || isBase64(given.data);
  return sound && readable ? (event as ServerEvent) : undefined;
}
