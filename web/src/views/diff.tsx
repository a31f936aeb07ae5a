/** What changed from one checkpoint to another. */

import { get, ofCheckpoint } from "../api";
import { useAsked } from "../asking";
import * as comparing from "../comparing";
import { CheckpointLink, Link, SubjectLink } from "../parts/links";
import { Empty, Trouble, Waiting } from "../parts/states";
import { brief, VariableValue } from "../parts/value";
import { go } from "../route";
import type { Checkpoint, Content, Diff, Manifest, Variable } from "../shapes";
import { count, exact, honest, size } from "../words";

interface Both {
  diff: Diff;
  before: { checkpoint: Checkpoint; content: Content };
  after: { checkpoint: Checkpoint; content: Content };
}

async function side(id: string): Promise<{ checkpoint: Checkpoint; content: Content }> {
  const [manifest, content] = await Promise.all([
    get<Manifest>(ofCheckpoint(id)),
    get<Content>(ofCheckpoint(id, "/content")),
  ]);
  return { checkpoint: manifest.checkpoint, content };
}

async function askBoth(before: string, after: string): Promise<Both> {
  const query = new URLSearchParams({ before, after });
  const [diff, a, b] = await Promise.all([
    get<Diff>(`/v1/diff?${query}`),
    side(before),
    side(after),
  ]);
  return { diff, before: a, after: b };
}

export function DiffView(props: { before: string; after: string }) {
  const { before, after } = props;
  const { value, error, again } = useAsked(`${before} ${after}`, () => askBoth(before, after));
  if (!before || !after) {
    return (
      <Empty title="Two checkpoints are needed">
        <p>Open a subject, mark two of its checkpoints, and compare them.</p>
        <Link to={{ view: "subjects" }} class="button">
          All subjects
        </Link>
      </Empty>
    );
  }
  if (error) {
    return (
      <>
        <Trouble error={error} again={again} />
        <Link to={{ view: "subjects" }}>All subjects</Link>
      </>
    );
  }
  if (!value) return <Waiting what="Comparing" />;
  return <Page both={value} />;
}

function Page({ both }: { both: Both }) {
  const { diff, before, after } = both;
  const variables = comparing.variables(diff, before.content, after.content);
  const values = diff.values.filter((each) => !comparing.isNoise(each.part, each.path));
  const files = comparing.files(before.content, after.content);
  const cut = before.content.more_files || after.content.more_files;
  const parts = diff.parts.filter((each) => each.change !== "same");
  return (
    <>
      <nav class="crumbs" aria-label="Where you are">
        <Link to={{ view: "subjects" }}>Subjects</Link> /{" "}
        <SubjectLink subject={after.checkpoint.subject} />
      </nav>
      <div class="title">
        <h1>What changed</h1>
        <button
          type="button"
          onClick={() => go({ view: "diff", before: diff.after, after: diff.before })}
        >
          Swap
        </button>
      </div>
      <div class="sides">
        <Side label="Before" checkpoint={before.checkpoint} />
        <Side label="After" checkpoint={after.checkpoint} />
      </div>
      {parts.length === 0 && (
        <Empty title="Nothing">
          <p>Both have the same content.</p>
        </Empty>
      )}
      {variables.length > 0 && <Variables pairs={variables} />}
      {parts.length > 0 && diff.variables?.length === 0 && (
        <Empty title="No variable changed">
          <p>What differs is listed below.</p>
        </Empty>
      )}
      {values.length > 0 && (
        <section aria-label="Values">
          <h2>{count(values.length + diff.more_values, "value")}</h2>
          <div class="card wide">
            <table class="cards diff">
              <thead>
                <tr>
                  <th>Where</th>
                  <th>Before</th>
                  <th>After</th>
                </tr>
              </thead>
              <tbody>
                {values.map((each) => (
                  <tr key={`${each.part} ${each.path}`}>
                    <td data-label="Where">
                      <code>{honest(comparing.place(each.part, each.path))}</code>
                    </td>
                    <td data-label="Before" class="old">
                      {"before" in each && <code>{brief(each.before)}</code>}
                    </td>
                    <td data-label="After" class="new">
                      {"after" in each && <code>{brief(each.after)}</code>}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
            {diff.more_values > 0 && <p class="soft">and {diff.more_values} more</p>}
          </div>
        </section>
      )}
      {files && (files.length > 0 || cut) && <Files pairs={files} cut={cut} />}
      {parts.length > 0 && <Parts parts={parts} />}
    </>
  );
}

function Side({ label, checkpoint }: { label: string; checkpoint: Checkpoint }) {
  return (
    <section class="card" aria-label={label}>
      <small class="soft">{label}</small>
      <p>
        <CheckpointLink checkpoint={checkpoint} /> <b>{honest(checkpoint.reason)}</b>
        <br />
        <span class="soft">
          {exact(checkpoint.time)} · {size(checkpoint.size_bytes)}
        </span>
      </p>
    </section>
  );
}

function Cell({ variable }: { variable: Variable | null }) {
  if (!variable) return <span class="soft">–</span>;
  return (
    <>
      <small class="soft">{honest(variable.type)}</small>
      <VariableValue variable={variable} />
    </>
  );
}

function Variables({ pairs }: { pairs: comparing.VariablePair[] }) {
  return (
    <section aria-label="Variables">
      <h2>{count(pairs.length, "variable")}</h2>
      <div class="card wide">
        <table class="cards diff">
          <thead>
            <tr>
              <th>Name</th>
              <th>Before</th>
              <th>After</th>
            </tr>
          </thead>
          <tbody>
            {pairs.map((each) => (
              <tr key={each.name}>
                <td data-label="Name">
                  <code>{honest(each.name)}</code>
                  <br />
                  <span class={`change ${each.change}`}>{each.change}</span>
                </td>
                <td data-label="Before" class="old">
                  <Cell variable={each.before} />
                </td>
                <td data-label="After" class="new">
                  <Cell variable={each.after} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

const MOST_FILES = 300;

function Files({ pairs, cut }: { pairs: comparing.FilePair[]; cut: boolean }) {
  return (
    <section aria-label="Files">
      <h2>{count(pairs.length, "file")}</h2>
      <div class="card wide">
        <table class="cards">
          <thead>
            <tr>
              <th>Path</th>
              <th>Change</th>
              <th class="number">Before</th>
              <th class="number">After</th>
            </tr>
          </thead>
          <tbody>
            {pairs.slice(0, MOST_FILES).map((each) => (
              <tr key={each.path}>
                <td data-label="Path">
                  <code>{honest(each.path)}</code>
                </td>
                <td data-label="Change">
                  <span class={`change ${each.change}`}>{each.change}</span>
                </td>
                <td data-label="Before" class="number">
                  {each.before ? size(each.before.size) : ""}
                </td>
                <td data-label="After" class="number">
                  {each.after ? size(each.after.size) : ""}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {pairs.length > MOST_FILES && <p class="soft">and {pairs.length - MOST_FILES} more</p>}
        {cut && <p class="soft">There are too many to list; those at the end were not compared.</p>}
      </div>
    </section>
  );
}

function Parts({ parts }: { parts: Diff["parts"] }) {
  return (
    <details>
      <summary>
        <h2>{count(parts.length, "part")} in the store</h2>
      </summary>
      <div class="card wide">
        <table class="cards">
          <thead>
            <tr>
              <th>Part</th>
              <th>Change</th>
              <th class="number">Before</th>
              <th class="number">After</th>
              <th class="number">New bytes</th>
            </tr>
          </thead>
          <tbody>
            {parts.slice(0, MOST_FILES).map((each) => (
              <tr key={each.name}>
                <td data-label="Part">
                  <code>{honest(each.name)}</code>
                </td>
                <td data-label="Change">{each.change}</td>
                <td data-label="Before" class="number">
                  {size(each.size_before ?? 0)}
                </td>
                <td data-label="After" class="number">
                  {size(each.size_after ?? 0)}
                </td>
                <td data-label="New bytes" class="number">
                  {size(each.changed_bytes)}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </details>
  );
}
