import { describe, expect, it } from "vitest";
import { added, answered, type Heard, heard, NOTHING } from "../src/consoles/transcript";

const told = (...messages: Heard[]) => messages.reduce(heard, NOTHING);
const execute: Heard = { type: "ExecuteMessage", execution_id: 1, code: "x", memory_limit: null };
const output = (text: string): Heard => ({
  type: "OutputMessage",
  execution_id: 1,
  stream: "stdout",
  text,
});
const result = (more: object): Heard =>
  ({
    type: "ResultMessage",
    execution_id: 1,
    execution_count: 1,
    duration: 0,
    text: "",
    type_name: "int",
    error: null,
    value: null,
    ...more,
  }) as Heard;

describe("a console", () => {
  it("shows what was typed, its output as it comes, and the value", () => {
    const running = told(execute, output("a"), output("b\n"));
    expect(running.running.has(1)).toBe(true);
    expect(running.lines).toEqual([
      { kind: "code", text: "x", id: 1 },
      { kind: "stdout", text: "ab\n", id: 1 },
    ]);
    const done = heard(running, result({ text: "42" }));
    expect(done.running.size).toBe(0);
    expect(done.lines.at(-1)).toEqual({ kind: "value", text: "42", id: 1 });
  });

  it("shows an error by its traceback", () => {
    const error = { error_type: "ValueError", message: "no", traceback: "Traceback…" };
    expect(told(execute, result({ error })).lines.at(-1)).toMatchObject({
      kind: "error",
      text: "Traceback…",
    });
    const refused = told(execute, {
      type: "ErrorMessage",
      error_type: "usage",
      message: "it is gone",
      traceback: "",
      request_id: 1,
    });
    expect(refused.running.size).toBe(0);
  });

  it("asks, and keeps passwords to itself", () => {
    const asking = (password: boolean): Heard => ({
      type: "InputMessage",
      request_id: 1,
      execution_id: 1,
      prompt: "who? ",
      password,
    });
    const asked = told(execute, asking(false));
    expect(asked.question?.prompt).toBe("who? ");
    expect(answered(asked, "me").lines.at(-1)?.text).toBe("who? me\n");
    expect(answered(told(execute, asking(true)), "secret").lines.at(-1)?.text).toBe("who? \n");
    expect(heard(asked, result({})).question).toBeNull();
    expect(answered(NOTHING, "x")).toBe(NOTHING);
  });

  it("does not grow for ever", () => {
    let long = told(execute);
    for (let at = 0; at < 30; at += 1) {
      long = added(long, { kind: "stdout", text: "y".repeat(10_000), id: 1 });
    }
    expect(long.lines.at(-1)?.text.length).toBeLessThan(201_000);
    expect(heard(NOTHING, { type: "New" } as unknown as Heard)).toBe(NOTHING);
  });
});
