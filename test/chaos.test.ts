import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { CRASH_POINTS } from "./chaos/crash-points.ts";

const ROOT = join(import.meta.dirname, "..");

test("chaos knows every crash point of the sources, and no other", async () => {
  const named = new Set<string>();
  for await (const path of glob("packages/{node,control}/src/**/*.ts", { cwd: ROOT })) {
    if (/\.test(-support)?\.ts$/.test(path)) continue;
    const text = await readFile(join(ROOT, path), "utf8");
    for (const [, name] of text.matchAll(/(?:crashPoint\(|\b(?:intent|commit): )"([a-z_.]+)"/g))
      named.add(name as string);
  }
  expect([...named].toSorted()).toEqual([...CRASH_POINTS].toSorted());
});
