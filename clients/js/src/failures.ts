/** What a status of failure means, until the server says more. */

import {
  CaptureFailed,
  Conflict,
  Denied,
  type ErrorDetails,
  HoldfastError,
  LeaseLost,
  NotFound,
  Unsupported,
} from "./errors.js";
import { SandboxEvent } from "./messages.js";

type Failure = new (message: string, details?: ErrorDetails) => HoldfastError;

const FAILURES: Readonly<Record<string, [Failure, string?]>> = {
  [SandboxEvent.SANDBOX_NOT_FOUND]: [NotFound, "it was killed, or its idle time is over"],
  [SandboxEvent.SANDBOX_IN_USE]: [Conflict, "another client is attached to it; try again later"],
  [SandboxEvent.SANDBOX_PERMISSION_DENIAL_ERROR]: [Denied, "give the sandboxToken of its maker"],
  [SandboxEvent.SANDBOX_EXECUTION_UNSUPPORTED_LANGUAGE_ERROR]: [Unsupported],
  [SandboxEvent.SANDBOX_EXECUTION_IN_PROGRESS_ERROR]: [
    Conflict,
    "wait for the process, or say duringExecution",
  ],
  [SandboxEvent.SANDBOX_CHECKPOINT_ERROR]: [
    CaptureFailed,
    "the sandbox is as it was: Sandbox.attach goes on with it",
  ],
  [SandboxEvent.SANDBOX_LOCK_RENEWAL_ERROR]: [LeaseLost],
};

/** The error for a status, with the server's message. */
export function failureOf(status: string, message: string): HoldfastError {
  const [kind, hint] = FAILURES[status] ?? [HoldfastError];
  return new kind(message || status, { hint });
}
