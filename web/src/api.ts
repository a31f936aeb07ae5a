/** The server over HTTP. The login's cookie goes along by itself; no script ever sees a token. */

import { quoted } from "./route";

/** What the server refused, in its own words. */
export class Refusal extends Error {
  constructor(
    readonly kind: string,
    message: string,
    readonly hint: string | null,
    readonly status: number,
  ) {
    super(message);
    this.name = "Refusal";
  }
}

const UNREACHABLE = "the server does not answer";

export function refusalOf(error: unknown): Refusal {
  if (error instanceof Refusal) return error;
  if (error instanceof TypeError) {
    return new Refusal("fault", UNREACHABLE, "is it still running? this page tries again", 0);
  }
  const told = error as { kind?: string; message?: string; hint?: string | null };
  return new Refusal(told.kind ?? "fault", told.message ?? String(error), told.hint ?? null, 0);
}

/** Ask, and read the answer. Throws Refusal. */
export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  let answer: Response;
  try {
    answer = await fetch(path, {
      method,
      headers: { Accept: "application/json" },
      ...(body === undefined ? {} : { body: JSON.stringify(body) }),
    });
  } catch (error) {
    throw refusalOf(error);
  }
  if (answer.status === 401) {
    // The token is another one since the server started anew; what was open is kept.
    location.assign(`/login?next=${encodeURIComponent(location.pathname)}`);
  }
  const told = await answer.json().catch(() => null);
  if (answer.ok && told !== null) return told as T;
  const error = (told as { error?: { kind: string; message: string; hint: string | null } } | null)
    ?.error;
  throw new Refusal(
    error?.kind ?? "fault",
    error?.message ?? `the server answered ${answer.status}`,
    error?.hint ?? null,
    answer.status,
  );
}

export const get = <T>(path: string): Promise<T> => call<T>("GET", path);
export const post = <T>(path: string, body: unknown = {}): Promise<T> =>
  call<T>("POST", path, body);

export const ofCheckpoint = (id: string, rest = ""): string =>
  `/v1/checkpoints/${encodeURIComponent(id)}${rest}`;
export const ofSubject = (subject: string, rest = ""): string =>
  `/v1/subjects/${quoted(subject)}${rest}`;
