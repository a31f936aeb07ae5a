import { describe, expect, it } from "vitest";
import { crossing, draw, path } from "../src/lanes";
import { checkpoint } from "./checkpoint";

const chain = (number: number) =>
  Array.from({ length: number }, (_, at) =>
    checkpoint(`c${number - at}`, at === number - 1 ? [] : [`c${number - at - 1}`]),
  );

describe("a lineage as a drawing", () => {
  it("keeps a line of descent in one column", () => {
    const drawing = draw(chain(5));
    expect([...drawing.columns]).toEqual([0, 0, 0, 0, 0]);
    expect(drawing.width).toBe(1);
    expect(crossing(drawing, 0, 4)).toHaveLength(4);
  });

  it("opens a column for each further child and closes it at the parent", () => {
    const drawing = draw([
      checkpoint("d", ["a"]),
      checkpoint("c", ["b"]),
      checkpoint("b", ["a"]),
      checkpoint("a", []),
    ]);
    expect([...drawing.columns]).toEqual([0, 1, 1, 0]);
    expect(drawing.width).toBe(2);
    const joining = crossing(drawing, 3, 3).find((edge) => edge.lane === 1);
    expect(joining).toMatchObject({ from: 2, to: 3, toColumn: 0 });
  });

  it("draws both parents of a merge", () => {
    const drawing = draw([checkpoint("m", ["a", "b"]), checkpoint("b", []), checkpoint("a", [])]);
    expect(crossing(drawing, 0, 2)).toHaveLength(2);
    expect([...drawing.columns]).toEqual([0, 1, 0]);
  });

  it("does not follow parents that are not there", () => {
    expect(crossing(draw([checkpoint("b", ["gone"]), checkpoint("a", [])]), 0, 1)).toEqual([]);
  });

  it("finds what crosses a window of ten thousand, and cuts it to the window", () => {
    const drawing = draw(chain(10_000));
    const seen = crossing(drawing, 5000, 5020);
    expect(seen).toHaveLength(22);
    const long = { from: 0, to: 9999, fromColumn: 0, toColumn: 0, lane: 1 };
    expect(path(long, 10, 10, [5000, 5020])).toBe("M15 50005V50205");
  });

  it("takes no time to speak of for ten thousand with a thousand branches", () => {
    const many = chain(9000);
    for (let at = 0; at < 1000; at += 1) {
      many.splice(at * 8, 0, checkpoint(`f${at}`, [`c${Math.max(1, 8900 - at * 8)}`]));
    }
    const began = performance.now();
    expect(draw(many).columns).toHaveLength(10_000);
    expect(performance.now() - began).toBeLessThan(2000);
  });
});
