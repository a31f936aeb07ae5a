/** What stands in a console: what was typed, and what came of it. Pure. */

import type {
  CheckpointCreatedMessage,
  ErrorMessage,
  ExecuteMessage,
  InputMessage,
  OutputMessage,
  RestoredMessage,
  ResultMessage,
} from "../shapes";
import { size } from "../words";

export interface Line {
  kind: "code" | "stdout" | "stderr" | "value" | "error" | "note";
  text: string;
  /** Of the execution that it belongs to. */
  id: number;
}

export interface Transcript {
  lines: readonly Line[];
  /** Executions that have not ended. */
  running: ReadonlySet<number>;
  /** What a running program asks for. */
  question: InputMessage | null;
}

export type Heard =
  | ({ type: "ExecuteMessage" } & Omit<ExecuteMessage, "type">)
  | ({ type: "OutputMessage" } & Omit<OutputMessage, "type">)
  | ({ type: "InputMessage" } & Omit<InputMessage, "type">)
  | ({ type: "ResultMessage" } & Omit<ResultMessage, "type">)
  | ({ type: "ErrorMessage" } & Omit<ErrorMessage, "type">)
  | ({ type: "CheckpointCreatedMessage" } & Omit<CheckpointCreatedMessage, "type">)
  | ({ type: "RestoredMessage" } & Omit<RestoredMessage, "type">);

export const NOTHING: Transcript = { lines: [], running: new Set(), question: null };

const MOST_LINES = 2000;
const LONGEST = 200_000;

/** A transcript with one more line; output of one kind grows its line. */
export function added(before: Transcript, line: Line): Transcript {
  const last = before.lines.at(-1);
  const grows =
    last !== undefined &&
    (line.kind === "stdout" || line.kind === "stderr") &&
    last.kind === line.kind &&
    last.id === line.id;
  if (!grows) return { ...before, lines: [...before.lines.slice(-MOST_LINES), line] };
  const text = `${last.text}${line.text}`;
  const kept = text.length > LONGEST ? `…\n${text.slice(-LONGEST)}` : text;
  return { ...before, lines: [...before.lines.slice(0, -1), { ...last, text: kept }] };
}

function ended(before: Transcript, id: number): Transcript {
  const running = new Set(before.running);
  running.delete(id);
  const question = before.question?.execution_id === id ? null : before.question;
  return { ...before, running, question };
}

/** The transcript after a message of a session. */
export function heard(before: Transcript, message: Heard): Transcript {
  switch (message.type) {
    case "ExecuteMessage": {
      const id = message.execution_id;
      const next = added(before, { kind: "code", text: message.code, id });
      return { ...next, running: new Set([...before.running, id]) };
    }
    case "OutputMessage":
      return added(before, {
        kind: message.stream,
        text: message.text,
        id: message.execution_id,
      });
    case "InputMessage":
      return { ...before, question: message as InputMessage };
    case "ResultMessage": {
      const id = message.execution_id;
      let next = ended(before, id);
      if (message.error) {
        const { error_type, message: why, traceback } = message.error;
        next = added(next, { kind: "error", text: traceback || `${error_type}: ${why}`, id });
      } else if (message.text) {
        next = added(next, { kind: "value", text: message.text, id });
      }
      return next;
    }
    case "ErrorMessage": {
      const id = message.request_id ?? 0;
      return added(ended(before, id), { kind: "error", text: message.message, id });
    }
    case "CheckpointCreatedMessage":
      return added(before, {
        kind: "note",
        text: `checkpoint taken: ${size(message.size_bytes ?? 0)}`,
        id: -1,
      });
    case "RestoredMessage":
      return added(before, { kind: "note", text: "restored", id: -1 });
    default:
      return before; // of a newer server
  }
}

/** A question that was answered: what was typed belongs to the output. */
export function answered(before: Transcript, text: string): Transcript {
  const { question } = before;
  if (!question) return before;
  const shown = question.password ? "" : text;
  const line = {
    kind: "stdout" as const,
    text: `${question.prompt ?? ""}${shown}\n`,
    id: question.execution_id,
  };
  return { ...added(before, line), question: null };
}
