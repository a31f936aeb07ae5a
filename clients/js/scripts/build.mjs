// Builds dist/esm and dist/cjs: one file of code each, and the same types.
import { spawnSync } from "node:child_process";
import { cp, rm, writeFile } from "node:fs/promises";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const at = (path) => fileURLToPath(new URL(`../${path}`, import.meta.url));

await rm(at("dist"), { recursive: true, force: true });
for (const format of ["esm", "cjs"]) {
  await build({
    entryPoints: [at("src/index.ts")],
    outfile: at(`dist/${format}/index.js`),
    format,
    bundle: true,
    platform: "neutral",
    target: "es2022",
    logLevel: "warning",
  });
}
const types = spawnSync(
  process.execPath,
  [at("node_modules/typescript/bin/tsc"), "-p", at("tsconfig.build.json")],
  { stdio: "inherit" },
);
if (types.status !== 0) process.exit(types.status ?? 1);
// What a file is (ESM or CommonJS) is said by the package.json nearest to it, types included.
await cp(at("dist/esm"), at("dist/cjs"), {
  recursive: true,
  filter: (source) => !source.endsWith(".js"),
});
await writeFile(at("dist/cjs/package.json"), '{ "type": "commonjs" }\n');
