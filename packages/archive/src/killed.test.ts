import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import path from "node:path";
import { createInterface } from "node:readline";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { expect, test } from "vitest";
import { newKey, Place, readFolder, WINDOW } from "../test-support/folders.ts";
import type { Work } from "../test-support/unpack-process.ts";
import { packFolder } from "./pack.ts";
import { removePartial, unpackFolder } from "./unpack.ts";

const PROGRAM = path.join(import.meta.dirname, "../test-support/unpack-process.ts");
const WINDOWS = 12;
/** Steps of the process after which it is killed: it has one for each window, and two after them. */
const KILLS = size({ ci: 3, full: WINDOWS + 3 });
const PATIENCE_MS = size({ ci: 2, full: 5 }) * 60_000 * SLOWNESS;
const afterSteps = (kill: number) => Math.round((kill * (WINDOWS + 2)) / Math.max(1, KILLS - 1));

/** Kills the process once it has done so many steps. */
async function killedAfter(steps: number, work: Work): Promise<void> {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(work)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const ended = once(child, "exit");
  let done = 0;
  if (steps === 0) child.kill("SIGKILL");
  for await (const _ of createInterface(child.stdout)) if (++done === steps) child.kill("SIGKILL");
  await ended;
}

test(
  "a process that is killed while it unpacks leaves the whole folder or no folder",
  async () => {
    using place = new Place();
    const space = { store: await place.store(), secret: place.secret };
    const own = newKey();
    const dir = await place.folder({
      mem: { bytes: 40 * WINDOW, parts: [{ at: WINDOW, content: randomBytes(WINDOWS * WINDOW) }] },
    });
    const { contents } = await packFolder(space, own, { dir, files: ["mem"] });
    const expected = await readFolder(dir);
    const work = {
      objects: path.join(place.dir, "objects"),
      secret: place.secret.toString("hex"),
      key: own.key.toString("hex"),
      label: own.label,
    };
    for (let kill = 0; kill < KILLS; kill++) {
      const target = place.path();
      await killedAfter(afterSteps(kill), { ...work, unpack: { contents, dir: target } });
      if (existsSync(target)) expect(await readFolder(target)).toEqual(expected);
      const partial = await removePartial(place.dir);
      expect(partial.length).toBeLessThanOrEqual(existsSync(target) ? 0 : 1);
      expect(readdirSync(place.dir).filter((name) => name.includes("partial"))).toEqual([]);
      if (!existsSync(target)) await unpackFolder(space, own, { contents, dir: target });
      expect(await readFolder(target)).toEqual(expected);
    }
  },
  PATIENCE_MS,
);

test("a process that is killed while it packs leaves chunks that the next one does not send again", async () => {
  using place = new Place();
  const space = { store: await place.store(), secret: place.secret };
  const content = randomBytes(WINDOWS * WINDOW);
  const dir = await place.folder({ mem: { bytes: content.length, parts: [{ at: 0, content }] } });
  const own = newKey();
  const pack = { dir, files: ["mem"] };
  const work = {
    objects: path.join(place.dir, "objects"),
    secret: place.secret.toString("hex"),
    key: own.key.toString("hex"),
    label: own.label,
    pack,
  };
  await killedAfter(WINDOWS >> 1, work);
  const there = await Array.fromAsync(space.store.names());
  expect(there.length).toBeGreaterThanOrEqual(WINDOWS >> 1);
  const { contents, chunks } = await packFolder(space, own, pack);
  expect(space.store.puts.filter((name) => there.includes(name))).toEqual([]);
  expect(chunks).toHaveLength(WINDOWS);
  const target = place.path();
  await unpackFolder(space, own, { contents, dir: target });
  expect(await readFolder(target)).toEqual(await readFolder(dir));
});
