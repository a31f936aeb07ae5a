/** Waiting for an answer, but not longer than the caller wants to. */

import { TimedOut } from "./errors.js";
import type { CallOptions } from "./types.js";

/** A promise together with what settles it. */
export class Waiting<T> {
  readonly promise: Promise<T>;
  resolve!: (value: T) => void;
  reject!: (error: Error) => void;

  constructor() {
    this.promise = new Promise<T>((resolve, reject) => {
      this.resolve = resolve;
      this.reject = reject;
    });
    // Whoever asked may have gone (an abort): then nobody is left to hear of a failure.
    this.promise.catch(() => {});
  }
}

/** One step of a call that has several: what is left of its time, and what it had at first. */
interface Step extends CallOptions {
  whole?: number;
}

/** For a call of several steps: what each of them may take, so that all do not take longer. */
export function shared(options: CallOptions): () => CallOptions {
  const { timeout } = options;
  if (timeout === undefined) return () => options;
  const end = performance.now() + timeout;
  return (): Step => ({
    whole: timeout,
    ...options,
    timeout: Math.max(0, end - performance.now()),
  });
}

/** Throws the reason of a signal that was given too late: then nothing is to begin. */
export function checkWanted({ signal }: CallOptions): void {
  if (signal?.aborted) throw reasonOf(signal);
}

/** The promise's value, unless the caller gives up first; then `giveUp` may clean up. */
export async function within<T>(
  promise: Promise<T>,
  what: string,
  options: CallOptions,
  giveUp: (error: Error) => void = () => {},
): Promise<T> {
  const { signal, timeout, whole = timeout }: Step = options;
  if (signal === undefined && timeout === undefined) return promise;
  const ended = new Waiting<never>();
  const stop = (error: Error) => {
    giveUp(error);
    ended.reject(error);
  };
  const abort = () => stop(reasonOf(signal));
  const timer =
    timeout === undefined
      ? undefined
      : setTimeout(() => stop(new TimedOut(`${what} took longer than ${whole} ms`)), timeout);
  if (signal?.aborted) abort();
  signal?.addEventListener("abort", abort, { once: true });
  try {
    return await Promise.race([promise, ended.promise]);
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", abort);
  }
}

function reasonOf(signal: AbortSignal | undefined): Error {
  const reason: unknown = signal?.reason;
  return reason instanceof Error ? reason : new DOMException("aborted", "AbortError");
}
