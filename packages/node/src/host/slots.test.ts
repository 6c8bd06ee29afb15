import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import { expect, onTestFinished, test } from "vitest";
import { claimSlots } from "./claims.ts";
import { isHostUsed, removeUnnamedSlots } from "./slots.ts";

const SLOTS_DIR = "/run/vivarium/slots";

test("removes the files of a process that was killed while it took a slot, and those of no other owner", async () => {
  const [ours, theirs] = [`/nowhere/${randomId(8)}`, `/nowhere/${randomId(8)}`];
  const unnamed = `.1-${randomId(8)}`;
  const foreign = `.1-${randomId(8)}`;
  await mkdir(SLOTS_DIR, { recursive: true, mode: 0o700 });
  onTestFinished(() => rm(path.join(SLOTS_DIR, foreign), { force: true }));
  await writeFile(path.join(SLOTS_DIR, unnamed), ours);
  await writeFile(path.join(SLOTS_DIR, foreign), theirs);
  await removeUnnamedSlots(ours);
  const names = await readdir(SLOTS_DIR);
  expect(names).not.toContain(unnamed);
  expect(names).toContain(foreign);
});

test("a host is used by other nodes and bakes that run, and by machines that outlive theirs", async () => {
  const dir = await mkdtemp(path.join(tmpdir(), "slots-"));
  onTestFinished(() => rm(dir, { recursive: true }));
  const [slotsDir, claimsDir] = [path.join(dir, "slots"), path.join(dir, "claims")];
  const isUsed = () => isHostUsed("/srv/a#bake", { slotsDir, claimsDir });
  await mkdir(slotsDir);
  const release = await claimSlots("/srv/a#bake", claimsDir);
  expect(await isUsed()).toBe(false);
  await release();
  const releaseNode = await claimSlots("/srv/a", claimsDir);
  expect(await isUsed()).toBe(true);
  await releaseNode();
  await writeFile(path.join(slotsDir, "7"), "/srv/b");
  expect(await isUsed()).toBe(true);
});
