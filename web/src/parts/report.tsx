/** What a capture did with each item, and why: what did not come through whole comes first. */

import { useState } from "preact/hooks";
import type { Item } from "../shapes";
import { count, honest, size } from "../words";

const ORDER: Item["outcome"][] = ["placeholder", "skipped", "rebuilt", "exact"];
const MEANING: Record<Item["outcome"], string> = {
  exact: "it comes back as it was",
  rebuilt: "it comes back from its source or a portable form",
  placeholder: "something stands in for it that says what is missing",
  skipped: "it was left out",
};
const MOST = 100;

export function ReportTable({ items }: { items: Item[] }) {
  const [only, setOnly] = useState<Item["outcome"] | "">("");
  const [most, setMost] = useState(MOST);
  if (!items.length) return null;
  const counts = new Map<string, number>();
  for (const each of items) counts.set(each.outcome, (counts.get(each.outcome) ?? 0) + 1);
  const shown = items
    .filter((each) => only === "" || each.outcome === only)
    .sort((a, b) => ORDER.indexOf(a.outcome) - ORDER.indexOf(b.outcome));
  return (
    <section aria-label="Report">
      <h2>Report: {count(items.length, "item")}</h2>
      <fieldset class="chips">
        <legend class="unseen">Outcome</legend>
        <button type="button" class="chip" aria-pressed={only === ""} onClick={() => setOnly("")}>
          all <small>{items.length}</small>
        </button>
        {ORDER.filter((each) => counts.has(each)).map((each) => (
          <button
            type="button"
            key={each}
            class="chip"
            title={MEANING[each]}
            aria-pressed={only === each}
            onClick={() => setOnly(each)}
          >
            {each} <small>{counts.get(each)}</small>
          </button>
        ))}
      </fieldset>
      <div class="card wide">
        <table class="cards report">
          <thead>
            <tr>
              <th>Name</th>
              <th>Outcome</th>
              <th>Form</th>
              <th class="number">Size</th>
              <th>Why</th>
            </tr>
          </thead>
          <tbody>
            {shown.slice(0, most).map((each) => (
              <tr key={each.name}>
                <td data-label="Name">
                  <code>{honest(each.name)}</code>
                </td>
                <td data-label="Outcome">
                  <span class={`outcome ${each.outcome}`} title={MEANING[each.outcome]}>
                    {each.outcome}
                  </span>
                </td>
                <td data-label="Form" class="soft">
                  {each.tier}
                </td>
                <td data-label="Size" class="number">
                  {each.size_bytes ? size(each.size_bytes) : ""}
                </td>
                <td data-label="Why" class="soft">
                  {honest(each.reason)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {shown.length > most && (
          <button type="button" onClick={() => setMost(shown.length)}>
            Show all {shown.length}
          </button>
        )}
      </div>
    </section>
  );
}
