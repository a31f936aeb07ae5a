/** Answers for a view: asked when it is shown, again when its key changes, and on demand. */

import { useCallback, useEffect, useState } from "preact/hooks";
import { type Refusal, refusalOf } from "./api";

export interface Asked<T> {
  value: T | null;
  error: Refusal | null;
  again: () => void;
}

/**
 * What `ask` gives for a key. With another version of the same it is asked again, and the last
 * answer stays until the next one is there.
 */
export function useAsked<T>(key: string, ask: () => Promise<T>, version = ""): Asked<T> {
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
  }, [key, version, round]);
  const again = useCallback(() => next((was) => was + 1), []);
  return state.key === key
    ? { value: state.value, error: state.error, again }
    : { value: null, error: null, again };
}

/** The value, changing at most once in so many milliseconds; the last one always comes. */
export function useCalm<T>(value: T, milliseconds: number): T {
  const [shown, show] = useState({ value, since: 0 });
  useEffect(() => {
    if (value === shown.value) return;
    const left = Math.max(0, shown.since + milliseconds - Date.now());
    const timer = setTimeout(() => show({ value, since: Date.now() }), left);
    return () => clearTimeout(timer);
  }, [value, shown, milliseconds]);
  return shown.value;
}
