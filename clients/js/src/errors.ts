/**
 * Errors, one class for each thing a caller can do about them. `kind` is the same word in Python,
 * over HTTP and on the command line; `hint` says what to do next.
 */

export type ErrorKind =
  | "fault"
  | "usage"
  | "not_found"
  | "conflict"
  | "lease_lost"
  | "busy"
  | "unsupported"
  | "corrupt"
  | "capture_failed"
  | "denied"
  | "storage_full"
  | "bad_input"
  | "timeout"
  | "connection";

export interface ErrorDetails {
  hint?: string | undefined;
  cause?: unknown;
}

export class HoldfastError extends Error {
  readonly kind: ErrorKind = "fault";
  readonly hint: string | undefined;

  constructor(message: string, details: ErrorDetails = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.hint = details.hint;
  }
}

/** The call itself is wrong, for instance because the sandbox is gone: fix the call. */
export class UsageError extends HoldfastError {
  override readonly kind: ErrorKind = "usage";
}

/** What was asked for cannot be read as a request. */
export class BadInput extends HoldfastError {
  override readonly kind: ErrorKind = "bad_input";
}

/** There is no such sandbox, checkpoint or file. */
export class NotFound extends HoldfastError {
  override readonly kind: ErrorKind = "not_found";
}

/** Somebody else has it, or something is going on: look, then try again. */
export class Conflict extends HoldfastError {
  override readonly kind: ErrorKind = "conflict";
}

/** A limit is reached: the same request may be made again later. */
export class Busy extends Conflict {
  override readonly kind: ErrorKind = "busy";
}

/** The server lost its right to run the sandbox. */
export class LeaseLost extends HoldfastError {
  override readonly kind: ErrorKind = "lease_lost";
}

/** The server or its engine cannot do this. */
export class Unsupported extends HoldfastError {
  override readonly kind: ErrorKind = "unsupported";
}

/** The bytes are not what was written. */
export class Corrupt extends HoldfastError {
  override readonly kind: ErrorKind = "corrupt";
}

/** The checkpoint was not made; the sandbox is as it was. */
export class CaptureFailed extends HoldfastError {
  override readonly kind: ErrorKind = "capture_failed";
}

/** A token is missing or wrong. */
export class Denied extends HoldfastError {
  override readonly kind: ErrorKind = "denied";
}

/** There is no room left where checkpoints are kept. */
export class StorageFull extends HoldfastError {
  override readonly kind: ErrorKind = "storage_full";
}

/** It took longer than the caller wanted to wait. */
export class TimedOut extends HoldfastError {
  override readonly kind: ErrorKind = "timeout";
}

/** The server cannot be reached, or left in the middle. */
export class ConnectionLost extends HoldfastError {
  override readonly kind: ErrorKind = "connection";
}

const CLASSES: Partial<
  Record<string, new (message: string, details?: ErrorDetails) => HoldfastError>
> = {
  usage: UsageError,
  bad_input: BadInput,
  not_found: NotFound,
  conflict: Conflict,
  lease_lost: LeaseLost,
  busy: Busy,
  unsupported: Unsupported,
  corrupt: Corrupt,
  capture_failed: CaptureFailed,
  denied: Denied,
  storage_full: StorageFull,
};

/** The error of a kind; an unknown kind, from a newer server, is a fault. */
export function errorOfKind(
  kind: string | undefined,
  message: string,
  details: ErrorDetails = {},
): HoldfastError {
  const known = kind === undefined ? undefined : CLASSES[kind];
  return known === undefined ? new HoldfastError(message, details) : new known(message, details);
}
