/** What a console's view needs, whatever runs behind it. */

import { type Signal, signal } from "@preact/signals";
import type { Refusal } from "../api";
import { NOTHING, type Transcript } from "./transcript";

export type Language = "python" | "bash";

export abstract class Console {
  readonly transcript: Signal<Transcript> = signal(NOTHING);
  readonly state: Signal<"starting" | "ready" | "ended"> = signal("starting");
  /** Why it ended, where that is known. */
  readonly ending: Signal<string> = signal("");
  /** Whether it can be brought back from its head when it has ended. */
  returns = true;
  readonly trouble: Signal<Refusal | null> = signal(null);
  abstract readonly languages: readonly Language[];

  abstract run(language: Language, code: string): void;
  /** Answer what a running program asks for. */
  abstract answer(text: string): void;
  abstract interrupt(): void;
  /** Leave; what runs goes on where it can. */
  abstract leave(): void;
}
