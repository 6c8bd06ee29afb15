/** Packs installed packages with their dependencies into one archive of node_modules. */
import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

const ROOT = join(import.meta.dirname, "../..");

export function packModules(names: string[]): Buffer {
  const folders = [...closureOf(names)].map((name) => `node_modules/${name}`);
  const argv = ["-C", ROOT, "-czf", "-", "--exclude=*.map", ...folders];
  return execFileSync("tar", argv, { maxBuffer: 512 * 1024 * 1024 });
}

/** Names with all their dependencies; packages for other systems are not installed and left out. */
function closureOf(names: string[], seen = new Set<string>()): Set<string> {
  for (const name of names) {
    const file = join(ROOT, "node_modules", name, "package.json");
    if (seen.has(name) || !existsSync(file)) continue;
    seen.add(name);
    const { dependencies = {}, optionalDependencies = {} } = JSON.parse(readFileSync(file, "utf8"));
    closureOf([...Object.keys(dependencies), ...Object.keys(optionalDependencies)], seen);
  }
  return seen;
}
