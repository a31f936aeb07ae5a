/** Tokens of the sandboxes that this program made, so that attaching needs only the id. */

import { BadInput } from "./errors.js";

interface Pass {
  sandboxToken: string;
  /** The server's. */
  token: string | undefined;
}

const passes = new Map<string, Pass>();

export function remember(id: string, sandboxToken: string, token: string | undefined): void {
  passes.set(id, { sandboxToken, token });
}

/** The sandbox is no more. */
export function forget(id: string): void {
  passes.delete(id);
}

/** What lets somebody in who knows the id and perhaps the tokens. Throws BadInput. */
export function passFor(
  id: string,
  sandboxToken: string | undefined,
  token: string | undefined,
): Pass {
  const known = passes.get(id);
  const own = sandboxToken ?? known?.sandboxToken;
  if (own === undefined) {
    throw new BadInput(`no token for the sandbox ${id}`, {
      hint: "give the sandboxToken of whoever made it",
    });
  }
  return { sandboxToken: own, token: token ?? known?.token };
}
