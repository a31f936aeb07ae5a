/** Values to look at: JSON-like ones as a tree, variables with their arrays. */

import type { Array as Numbers, Variable } from "../shapes";
import { figure, honest } from "../words";
import { Histogram, Spark } from "./plots";

/** A value in one line. */
export function brief(value: unknown): string {
  if (value !== null && typeof value === "object") {
    const special = value as Record<string, unknown>;
    if (typeof special.$number === "string") return special.$number;
    if (typeof special.$bytes === "number") return `${special.$bytes} bytes`;
    if (typeof special.$text === "string") return special.$text;
  }
  if (value !== null && typeof value === "object" && "$type" in value && "value" in value) {
    // How a state keeps what JSON has no word for.
    return honest(`${value.$type}(${brief(value.value)})`);
  }
  const text = JSON.stringify(value) ?? "";
  return honest(text.length > 300 ? `${text.slice(0, 300)}…` : text);
}

/** A JSON-like value as a tree that opens. */
export function Tree({ name, value, depth = 0 }: { name: string; value: unknown; depth?: number }) {
  const inner = inside(value);
  if (!inner) {
    return (
      <div class="leaf">
        <span class="key">{honest(name)}</span> <code>{brief(value)}</code>
      </div>
    );
  }
  return (
    <details class="branch" open={depth < 2 && inner.length <= 30}>
      <summary>
        <span class="key">{honest(name)}</span>{" "}
        <span class="soft">
          {Array.isArray(value) ? `${inner.length} items` : `${inner.length} keys`}
        </span>
      </summary>
      {inner.map(([key, each]) => (
        <Tree key={key} name={key} value={each} depth={depth + 1} />
      ))}
    </details>
  );
}

function inside(value: unknown): [string, unknown][] | null {
  if (Array.isArray(value)) {
    return value.length ? value.map((each, at) => [String(at), each]) : null;
  }
  if (value === null || typeof value !== "object") return null;
  const pairs = Object.entries(value);
  const special = pairs.length === 1 && pairs[0]?.[0].startsWith("$");
  return pairs.length && !special ? pairs : null;
}

/** An array in figures and two plots. */
export function ArraySummary({ array }: { array: Numbers }) {
  if (array.looked_at <= 1) return null;
  const total = array.shape.reduce((a, b) => a * b, 1);
  return (
    <span class="array">
      <Spark values={array.series} label="its values in order" />
      <Histogram
        counts={array.histogram}
        low={array.minimum}
        high={array.maximum}
        label="how its values are spread"
      />
      <small class="soft">
        min {figure(array.minimum)} · mean {figure(array.mean)} · max {figure(array.maximum)}
        {array.missing > 0 && ` · ${array.missing} not finite`}
        {array.looked_at < total && ` · of the first ${array.looked_at.toLocaleString("en")}`}
      </small>
    </span>
  );
}

export function VariableValue({ variable }: { variable: Variable }) {
  return (
    <div class="variable">
      {variable.source ? (
        <details>
          <summary>
            <code>{honest(variable.text)}</code>
          </summary>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may have to be scrolled */}
          <pre tabIndex={0}>{honest(variable.source)}</pre>
        </details>
      ) : (
        <code>{honest(variable.text)}</code>
      )}
      {variable.array && <ArraySummary array={variable.array} />}
    </div>
  );
}
