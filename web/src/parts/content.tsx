/** What is inside a checkpoint: variables, the state, files, versions. */

import { useState } from "preact/hooks";
import { get, ofCheckpoint } from "../api";
import { useAsked } from "../asking";
import type { Content, File, Memory, Variable } from "../shapes";
import { count, exact, honest, size } from "../words";
import { Trouble, Waiting } from "./states";
import { Tree, VariableValue } from "./value";

const MOST = 200;

export function ContentOf({ id }: { id: string }) {
  const { value, error, again } = useAsked(id, () => get<Content>(ofCheckpoint(id, "/content")));
  if (error) return <Trouble error={error} again={again} />;
  if (!value) return <Waiting what="Looking inside" />;
  return (
    <>
      {value.variables && value.variables.length > 0 && <Variables all={value.variables} />}
      {value.has_state && (
        <section aria-label="State">
          <h2>State</h2>
          <div class="card wide">
            <Tree name="state" value={value.state} />
          </div>
        </section>
      )}
      {value.files && <Files files={value.files} more={value.more_files} />}
      {value.memory && <MemoryOf memory={value.memory} />}
      <Versions versions={value.versions} />
    </>
  );
}

function Variables({ all }: { all: Variable[] }) {
  const [text, setText] = useState("");
  const wanted = text.toLowerCase();
  const found = all.filter((each) => `${each.name} ${each.type}`.toLowerCase().includes(wanted));
  return (
    <section aria-label="Variables">
      <h2>{count(all.length, "variable")}</h2>
      {all.length > 10 && (
        <input
          type="search"
          aria-label="Search variables"
          placeholder="Search names and types"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      )}
      <div class="card wide">
        <table class="cards">
          <thead>
            <tr>
              <th>Name</th>
              <th>Type</th>
              <th>Value</th>
            </tr>
          </thead>
          <tbody>
            {found.slice(0, MOST).map((each) => (
              <tr key={each.name}>
                <td data-label="Name">
                  <code>{honest(each.name)}</code>
                </td>
                <td data-label="Type" class="soft">
                  {honest(each.type)}
                </td>
                <td data-label="Value">
                  <VariableValue variable={each} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
        {found.length > MOST && <p class="soft">The first {MOST} are shown; search for others.</p>}
      </div>
    </section>
  );
}

function Files({ files, more }: { files: File[]; more: boolean }) {
  const [text, setText] = useState("");
  const shown = files.filter((each) => each.kind !== "folder" && each.path.includes(text));
  return (
    <section aria-label="Files">
      <h2>
        {count(files.filter((each) => each.kind !== "folder").length, "file")}
        {more && " and more"}
      </h2>
      {files.length === 0 && <p class="soft">Nothing was written since it began.</p>}
      {files.length > 10 && (
        <input
          type="search"
          aria-label="Search files"
          placeholder="Search paths"
          value={text}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      )}
      {shown.length > 0 && (
        <div class="card wide">
          <table class="cards">
            <thead>
              <tr>
                <th>Path</th>
                <th>Kind</th>
                <th class="number">Size</th>
                <th>Written</th>
              </tr>
            </thead>
            <tbody>
              {shown.slice(0, MOST).map((each) => (
                <tr key={each.path}>
                  <td data-label="Path">
                    <code>{honest(each.path)}</code>
                  </td>
                  <td data-label="Kind" class="soft">
                    {each.kind}
                  </td>
                  <td data-label="Size" class="number">
                    {each.kind === "file" ? size(each.size) : ""}
                  </td>
                  <td data-label="Written" class="soft">
                    {exact(new Date(each.time * 1000).toISOString())}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          {shown.length > MOST && <p class="soft">The first {MOST} are shown.</p>}
        </div>
      )}
    </section>
  );
}

function MemoryOf({ memory }: { memory: Memory }) {
  return (
    <section aria-label="Memory">
      <h2>Memory</h2>
      <p class="card">
        <b>{size(memory.size)}</b> in {count(memory.images, "image")}:{" "}
        {memory.processes
          ? `${memory.processes === 1 ? "one process goes" : `${memory.processes} processes go`} on from there.`
          : "nothing but its own agent was running."}{" "}
        <span class="soft">What is in it is not shown: it may hold secrets.</span>
      </p>
    </section>
  );
}

function Versions({ versions }: { versions: Record<string, string> }) {
  const all = Object.entries(versions);
  if (!all.length) return null;
  return (
    <section aria-label="Versions">
      <h2>Versions and surroundings</h2>
      <dl class="facts card">
        {all.map(([name, value]) => (
          <>
            <dt key={name}>{honest(name)}</dt>
            <dd>
              <code>{honest(value)}</code>
            </dd>
          </>
        ))}
      </dl>
    </section>
  );
}
