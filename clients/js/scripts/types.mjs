// Writes src/messages.ts from the protocol's schema; with --check it only says whether it is current.
import { readFile, writeFile } from "node:fs/promises";
import { compile } from "json-schema-to-typescript";

const SCHEMA = new URL("../../../spec/messages.schema.json", import.meta.url);
const TARGET = new URL("../src/messages.ts", import.meta.url);
const BANNER = "// Generated from spec/messages.schema.json by `npm run types`. Do not edit.";

const schema = JSON.parse(await readFile(SCHEMA, "utf8"));
const definitions = schema.$defs.sandbox.$defs;

/** The schema nests its sections; the generator wants one flat list. */
function flat(node) {
  if (Array.isArray(node)) return node.map(flat);
  if (node === null || typeof node !== "object") return node;
  // What stands beside a reference (a default) would make it a type of its own.
  if (node.$ref) return { $ref: node.$ref.replace("#/$defs/sandbox/$defs/", "#/$defs/") };
  return Object.fromEntries(Object.entries(node).map(([key, value]) => [key, flat(value)]));
}

const flattened = {};
for (const [name, definition] of Object.entries(definitions)) {
  flattened[name] = { ...flat(definition), title: name };
  if (definition.type === "object") flattened[name].additionalProperties = false;
}
const root = {
  title: "Messages",
  $defs: flattened,
  anyOf: Object.keys(flattened).map((name) => ({ $ref: `#/$defs/${name}` })),
};
const types = await compile(root, "Messages", {
  bannerComment: BANNER,
  format: true,
  unreachableDefinitions: true,
});
const members = definitions.Status.enum.map((status) => `  ${status}: "${status}",\n`).join("");
const text = `${types}
/** Every status by its name. */
export const SandboxEvent = {
${members}} as const;
export type SandboxEvent = Status;
`;

if (process.argv.includes("--check")) {
  const there = await readFile(TARGET, "utf8").catch(() => "");
  if (there !== text) {
    console.error("src/messages.ts is not what the schema says: npm run types");
    process.exit(1);
  }
} else {
  await writeFile(TARGET, text);
}
