/**
 * How a sandbox's state follows from what the server says: one table, no I/O.
 *
 * A status that a state does not expect changes nothing, so that a newer server, or a frame that
 * comes late, does no harm.
 */

import { SandboxEvent } from "./messages.js";
import { SandboxState } from "./types.js";

const S = SandboxState;
const E = SandboxEvent;

export const TERMINAL: ReadonlySet<SandboxState> = new Set([
  S.CHECKPOINTED,
  S.KILLED,
  S.DELETED,
  S.DETACHED,
  S.FAILED,
]);

/** What the states themselves do not say. */
export interface Context {
  /** Whether the checkpoint under way was asked to leave the sandbox running. */
  leaveRunning: boolean;
  /** Whether an execution is under way. */
  executing: boolean;
}

type Next = SandboxState | ((context: Context) => SandboxState);
type Row = Partial<Record<SandboxState, Next>>;

const LIVE = Object.values(S).filter((state) => !TERMINAL.has(state));

function from(states: readonly SandboxState[], next: Next): Row {
  return Object.fromEntries(states.map((state) => [state, next]));
}

const before: Next = (context) => (context.executing ? S.EXECUTING : S.RUNNING);
const fails = from(LIVE, S.FAILED);
const nothing: Row = {};

export const TABLE: Readonly<Record<SandboxEvent, Row>> = {
  [E.SANDBOX_CREATING]: { [S.CONNECTING]: S.CREATING },
  [E.SANDBOX_RUNNING]: from([S.CONNECTING, S.CREATING, S.RESTORING, S.RECONNECTING], S.RUNNING),
  [E.SANDBOX_RESTORING]: from([S.CONNECTING, S.RECONNECTING, S.RUNNING], S.RESTORING),

  [E.SANDBOX_CREATION_ERROR]: fails,
  [E.SANDBOX_RESTORE_ERROR]: fails,
  [E.SANDBOX_NOT_FOUND]: fails,
  // The server has not noticed yet that our old connection broke: it is tried again.
  [E.SANDBOX_IN_USE]: { ...fails, [S.RECONNECTING]: S.RECONNECTING },
  [E.SANDBOX_PERMISSION_DENIAL_ERROR]: fails,
  [E.SANDBOX_ERROR]: fails,
  [E.SANDBOX_LOCK_RENEWAL_ERROR]: fails,
  // The server lets go of the connection; the sandbox itself is alive and can be attached to.
  [E.SANDBOX_CHECKPOINT_ERROR]: fails,

  [E.SANDBOX_EXECUTION_RUNNING]: from([S.RUNNING, S.RECONNECTING], S.EXECUTING),
  [E.SANDBOX_EXECUTION_DONE]: { [S.EXECUTING]: S.RUNNING },
  [E.SANDBOX_EXECUTION_ERROR]: { [S.EXECUTING]: S.RUNNING },
  [E.SANDBOX_EXECUTION_UNSUPPORTED_LANGUAGE_ERROR]: nothing,
  [E.SANDBOX_EXECUTION_FORCE_KILLED]: nothing,
  [E.SANDBOX_EXECUTION_FORCE_KILL_ERROR]: nothing,
  [E.SANDBOX_STDIN_ERROR]: nothing,

  [E.SANDBOX_CHECKPOINTING]: from([S.RUNNING, S.EXECUTING], S.CHECKPOINTING),
  [E.SANDBOX_CHECKPOINTED]: {
    [S.CHECKPOINTING]: (context) => (context.leaveRunning ? before(context) : S.CHECKPOINTED),
  },
  [E.SANDBOX_EXECUTION_IN_PROGRESS_ERROR]: { [S.CHECKPOINTING]: before },

  [E.SANDBOX_FILESYSTEM_SNAPSHOT_CREATING]: nothing,
  [E.SANDBOX_FILESYSTEM_SNAPSHOT_CREATED]: nothing,
  [E.SANDBOX_FILESYSTEM_SNAPSHOT_ERROR]: nothing,

  [E.SANDBOX_KILLING]: from([S.RUNNING, S.EXECUTING, S.CHECKPOINTING], S.KILLING),
  [E.SANDBOX_KILLED]: from([S.KILLING, S.RUNNING, S.EXECUTING], S.KILLED),
  [E.SANDBOX_KILL_ERROR]: { [S.KILLING]: before },
  [E.SANDBOX_DELETING]: nothing,
  // While it is checkpointed or killed, that word comes last.
  [E.SANDBOX_DELETED]: from([S.RUNNING, S.EXECUTING, S.RECONNECTING, S.RESTORING], S.DELETED),

  [E.SANDBOX_LOCK_ACQUIRING]: nothing,
  [E.SANDBOX_LOCK_ACQUIRED]: nothing,
  [E.SANDBOX_LOCK_RELEASE_REQUESTED]: nothing,
  [E.SANDBOX_LOCK_RELEASING]: nothing,
  [E.SANDBOX_LOCK_RELEASED]: nothing,
};

/** The state after a status. */
export function afterStatus(state: SandboxState, status: string, context: Context): SandboxState {
  const row = (TABLE as Readonly<Record<string, Row | undefined>>)[status];
  const next = row?.[state];
  if (next === undefined) return state;
  return typeof next === "function" ? next(context) : next;
}

/** The state after the connection broke. */
export function afterClose(state: SandboxState, reconnects: boolean): SandboxState {
  if (TERMINAL.has(state)) return state;
  const established = state === S.RUNNING || state === S.EXECUTING || state === S.RECONNECTING;
  return established && reconnects ? S.RECONNECTING : S.FAILED;
}
