import { copyFile, open } from "node:fs/promises";
import path from "node:path";
import { runHostCommand } from "@vivarium/kit/host-command";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { sumsBelow } from "./sums.ts";

inOwnDirectories();

const MIB = 1024 * 1024;

const sumOf = async (name: string) => (await sumsBelow(dir, [name]))[name];

async function writeAt(name: string, position: number, data: string | Buffer): Promise<void> {
  await using file = await open(path.join(dir, name), "r+");
  await file.write(Buffer.from(data), 0, null, position);
}

test("a large file has the same sum wherever it has its holes, and another one for any other byte", async () => {
  await using file = await open(path.join(dir, "disk"), "wx");
  await file.truncate(100 * MIB + 5);
  await writeAt("disk", 3 * MIB + 17, "data");
  await writeAt("disk", 100 * MIB + 4, "z");
  const sum = await sumOf("disk");
  expect(sum).toEqual({ bytes: 100 * MIB + 5, data_sha256: expect.stringMatching(/^[0-9a-f]{64}$/) });

  await writeAt("disk", 50 * MIB, Buffer.alloc(MIB));
  expect(await sumOf("disk")).toEqual(sum);
  const full = path.join(dir, "full");
  await copyFile(path.join(dir, "disk"), full);
  const { code } = await runHostCommand("fallocate", ["--length", String(100 * MIB), full]);
  expect(code).toBe(0);
  expect(await sumOf("full")).toEqual(sum);

  for (const position of [0, 3 * MIB + 18, 50 * MIB + 1, 100 * MIB + 3]) {
    await copyFile(path.join(dir, "disk"), path.join(dir, "changed"));
    await writeAt("changed", position, "x");
    expect(await sumOf("changed")).not.toEqual(sum);
  }
  // Data elsewhere is another file, though its chunks are the same.
  await writeAt("disk", 3 * MIB + 17, Buffer.alloc(4));
  await writeAt("disk", 4 * MIB + 17, "data");
  expect(await sumOf("disk")).not.toEqual(sum);
});
