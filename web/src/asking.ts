/** Answers for a view: asked when it is shown, again when its key changes, and on demand. */

import { useCallback, useEffect, useState } from "preact/hooks";
import { type Refusal, refusalOf } from "./api";

export interface Asked<T> {
  value: T | null;
  error: Refusal | null;
  again: () => void;
}

/** What `ask` gives for a key; the last answer stays until the next one is there. */
export function useAsked<T>(key: string, ask: () => Promise<T>): Asked<T> {
  const [state, set] = useState<{ key: string; value: T | null; error: Refusal | null }>({
    key,
    value: null,
    error: null,
  });
  const [round, next] = useState(0);
  useEffect(() => {
    let current = true;
    ask().then(
      (value) => current && set({ key, value, error: null }),
      (error) => current && set((was) => ({ ...was, key, error: refusalOf(error) })),
    );
    return () => {
      current = false;
    };
  }, [key, round]);
  const again = useCallback(() => next((was) => was + 1), []);
  return state.key === key
    ? { value: state.value, error: state.error, again }
    : { value: null, error: null, again };
}
