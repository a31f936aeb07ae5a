import { describe, expect, it } from "vitest";
import { files, isNoise, place, variables } from "../src/comparing";
import type { Content, Diff, File } from "../src/shapes";

const content = (more: Partial<Content>): Content => ({
  variables: null,
  state: null,
  has_state: false,
  files: null,
  more_files: false,
  memory: null,
  versions: {},
  ...more,
});
const file = (path: string, size: number, kind: File["kind"] = "file"): File => ({
  path,
  kind,
  size,
  time: 1,
});

describe("two checkpoints side by side", () => {
  it("pairs the variables that the server says differ", () => {
    const one = { name: "x", type: "int", text: "1", source: null, array: null };
    const diff: Diff = {
      before: "a",
      after: "b",
      parts: [],
      values: [],
      more_values: 0,
      variables: [
        { name: "x", change: "changed", before: null, after: null },
        { name: "gone", change: "removed", before: null, after: null },
      ],
    };
    const found = variables(
      diff,
      content({ variables: [one] }),
      content({ variables: [{ ...one, text: "2" }] }),
    );
    expect(found.map((each) => [each.name, each.before?.text, each.after?.text])).toEqual([
      ["x", "1", "2"],
      ["gone", undefined, undefined],
    ]);
  });

  it("finds files that came, went and changed", () => {
    const found = files(
      content({ files: [file("a", 1), file("b", 1), file("d", 0, "folder")] }),
      content({ files: [file("b", 2), file("c", 1), file("e", 0, "folder")] }),
    );
    expect(found?.map((each) => [each.path, each.change])).toEqual([
      ["a", "removed"],
      ["b", "changed"],
      ["c", "added"],
    ]);
    expect(files(content({}), content({ files: [] }))).toBeNull();
  });

  it("says nothing of files that a list which was cut short may have had", () => {
    const all = content({ files: [file("a", 1), file("b", 1), file("c", 1)] });
    const some = content({ files: [file("a", 2), file("b", 1)], more_files: true });
    const told = [["a", "changed"]];
    expect(files(all, some)?.map((each) => [each.path, each.change])).toEqual(told);
    expect(files(some, all)?.map((each) => [each.path, each.change])).toEqual(told);
  });

  it("leaves out what changes every time, and what says nothing", () => {
    expect([isNoise("environment", "created"), isNoise("state", "created")]).toEqual([true, false]);
    expect(place("state", "state_info.rows.kept")).toBe("rows.kept");
    expect([place("metrics", "loss[0]"), place("note", "")]).toEqual(["metrics: loss[0]", "note"]);
  });
});
