// Builds the page into the Python package: a document, a script and a style sheet, nothing else.
import { createHash } from "node:crypto";
import { mkdir, readFile, rename, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const at = (path) => fileURLToPath(new URL(path, import.meta.url));
const TARGET = at("../../src/holdfast/dashboard/static");
const FRESH = `${TARGET}.new`;

const built = await build({
  entryPoints: [at("../src/main.tsx")],
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  alias: { holdfast: at("../../clients/js/src/index.ts") },
  outdir: FRESH,
  write: false,
  logLevel: "warning",
  legalComments: "none",
});

await rm(FRESH, { recursive: true, force: true });
await mkdir(FRESH, { recursive: true });
let document = await readFile(at("../src/index.html"), "utf8");
const files = built.outputFiles.map((file) => [file.path.split(".").at(-1), file.contents]);
files.push(["svg", await readFile(at("../src/icon.svg"))]);
for (const [suffix, contents] of files) {
  // A name that changes with its content may be kept by browsers for ever.
  const digest = createHash("sha256").update(contents).digest("hex").slice(0, 12);
  const name = `page-${digest}.${suffix}`;
  await writeFile(`${FRESH}/${name}`, contents);
  document = document.replace(`/assets/page.${suffix}`, `/assets/${name}`);
}
await writeFile(`${FRESH}/index.html`, document);
// At once, so that a server never finds half a page.
await rm(TARGET, { recursive: true, force: true });
await rename(FRESH, TARGET);
