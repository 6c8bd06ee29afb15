import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { CRASH_POINTS, OUTSIDE_LOAD } from "./chaos/crash-points.ts";

const ROOT = join(import.meta.dirname, "..");

test("chaos knows every crash point of the sources, and no other", async () => {
  const named = new Set<string>();
  for await (const path of glob("packages/{node,control,objects}/src/**/*.ts", { cwd: ROOT })) {
    if (/\.test(-support)?\.ts$/.test(path)) continue;
    const text = await readFile(join(ROOT, path), "utf8");
    for (const [, name] of text.matchAll(/(?:crashPoint\(|\b(?:intent|commit): )"([a-z_.]+)"/g))
      named.add(name as string);
  }
  expect([...named].toSorted()).toEqual([...CRASH_POINTS].toSorted());
});

test("a test without machines dies at every crash point that the load of chaos does not reach", async () => {
  const texts: string[] = [];
  for await (const path of glob("packages/{node,control}/src/**/{crash-points,deaths}*.test.ts", {
    cwd: ROOT,
  }))
    texts.push(await readFile(join(ROOT, path), "utf8"));
  const tried = texts.join();
  expect(OUTSIDE_LOAD.filter((point) => !tried.includes(`"${point}"`))).toEqual([]);
});
