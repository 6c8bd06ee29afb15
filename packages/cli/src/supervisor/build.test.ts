import { cpSync, mkdirSync, readdirSync } from "node:fs";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { readBuild } from "./build.ts";
import { ROOT } from "./repository.ts";

inOwnDirectories();

test("a checkout has its version with the commit, and the number of its newest migration", async () => {
  const { version, schema } = await readBuild();
  expect(version).toMatch(/^\d+\.\d+\.\d+(\+[0-9a-f]{7,}(\.modified)?)?$/);
  const migrations = readdirSync(path.join(ROOT, "packages/control/src/db/migrations"));
  expect(schema).toBe(migrations.filter((name) => name.endsWith(".sql")).length);
});

test("a copy without git has its version alone", async () => {
  const migrations = "packages/control/src/db/migrations";
  mkdirSync(path.join(dir, migrations), { recursive: true });
  cpSync(path.join(ROOT, "package.json"), path.join(dir, "package.json"));
  expect(await readBuild(dir)).toEqual({ version: expect.stringMatching(/^\d+\.\d+\.\d+$/), schema: 0 });
});
