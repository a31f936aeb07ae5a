import { describe, expect, it } from "vitest";
import { address, parse, type Route } from "../src/route";
import { age, count, figure, honest, percent, size } from "../src/words";

describe("words", () => {
  it.each([
    [0, "0 B"],
    [999, "999 B"],
    [1000, "1.0 kB"],
    [1_500_000, "1.5 MB"],
    [15_000_000, "15 MB"],
    [999_600, "1.0 MB"],
  ])("says %d bytes as %s", (bytes, told) => expect(size(bytes)).toBe(told));

  it("says how long ago something was", () => {
    const now = Date.parse("2026-03-01T12:00:00Z");
    expect(age("2026-03-01T11:59:30.5Z", now)).toBe("29 s ago");
    expect(age("2026-03-01T11:00:00Z", now)).toBe("1 h ago");
    expect(age("2026-02-01T11:00:00Z", now)).toBe("28 d ago");
    expect(age("2025-12-24T11:00:00Z", now)).toBe("2025-12-24");
    expect(age("2026-03-01T12:00:01Z", now)).toBe("now");
    expect(age("2027-03-01T12:00:01Z", now)).toBe("2027-03-01");
  });

  it("counts, and shares", () => {
    expect([count(1, "part"), count(12345, "part")]).toEqual(["1 part", "12,345 parts"]);
    expect([percent(1, 3), percent(1, 1000), percent(1, 0)]).toEqual(["33%", "<1%", "0%"]);
    expect([figure(3), figure(0.123456), figure(1e-9), figure(null), figure(-Infinity)]).toEqual([
      "3",
      "0.12346",
      "1.00e-9",
      "NaN",
      "−∞",
    ]);
  });

  it("spells out what would make text read as something else", () => {
    expect(honest("a\u202eb\u0000c\nd")).toBe("a\\u202eb\\u0000c\nd");
  });
});

describe("addresses", () => {
  const all: Route[] = [
    { view: "subjects" },
    { view: "subject", subject: "container/default/a b<script>#?%" },
    { view: "checkpoint", id: "0190-x" },
    { view: "diff", before: "state/a~1", after: "state/a" },
    { view: "store" },
    { view: "run" },
    { view: "console", subject: "session/a/b" },
  ];
  it.each(all)("are read as they were written: $view", (each) => {
    const url = new URL(address(each), "http://x");
    expect(parse(url.pathname, url.search)).toEqual(each);
  });

  it("say so when there is nothing", () => {
    expect(parse("/subjects/state", "")).toEqual({ view: "lost", path: "/subjects/state" });
    expect(parse("/checkpoints/%ff", "")).toEqual({ view: "checkpoint", id: "%ff" });
  });
});
