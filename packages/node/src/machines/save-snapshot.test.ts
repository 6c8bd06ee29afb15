import { link, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { randomId } from "@vivarium/kit/id";
import { createLog } from "@vivarium/kit/log";
import { afterEach, beforeEach, expect, test } from "vitest";
import { makeLoadable, QEMU } from "../../test-support/loadable.ts";
import { makeUnpublished } from "../snapshots/folder.ts";
import { publishManifest } from "../snapshots/manifest.ts";
import { SumsThread } from "../snapshots/sums-thread.ts";
import { SnapshotTable } from "../snapshots/table.ts";
import { type SaveDeps, saveSnapshot } from "./save-snapshot.ts";

const log = createLog("test", "silent");
const newId = () => `chk_${randomId()}`;

let dataDir: string;
let sums: SumsThread;
let snapshots: SnapshotTable;
let deps: SaveDeps;
beforeEach(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "save-"));
  sums = new SumsThread({ log });
  snapshots = new SnapshotTable({ dataDir, log });
  // A copy uses nothing of a machine.
  deps = { snapshots, sums, qemu: QEMU, log } as SaveDeps;
});
afterEach(async () => {
  await sums.close();
  await rm(dataDir, { recursive: true, force: true });
});

async function publish(): Promise<string> {
  const id = newId();
  const { dir, manifest } = await makeLoadable(snapshots.dirOf(id));
  await publishManifest(dir, { ...manifest, own_bytes: 7 });
  return id;
}

const copy = async (id: string) =>
  (await saveSnapshot(deps, newId(), { snapshot_id: id })).manifest.own_bytes;

test("if several copies are made at once, exactly one counts the files that they share", async () => {
  const id = await publish();
  const counted = await Promise.all(Array.from({ length: 4 }, () => copy(id)));
  expect(counted.toSorted()).toEqual([0, 0, 0, 7]);
  expect(await copy(id)).toBe(0);
});

test("an unfinished copy does not count as a copy", async () => {
  const source = await snapshots.find(await publish());
  const half = snapshots.dirOf(newId());
  await makeUnpublished(half);
  await link(path.join(source.dir, "mem"), path.join(half, "mem"));
  expect(await snapshots.hasCopy(source)).toBe(false);
  await publishManifest(half, source.manifest);
  expect(await snapshots.hasCopy(source)).toBe(true);
});

test("a snapshot that lost its memory file shares none", async () => {
  const [first, second] = [await snapshots.find(await publish()), await snapshots.find(await publish())];
  for (const { dir } of [first, second]) await rm(path.join(dir, "mem"));
  expect(await snapshots.hasCopy(first)).toBe(false);
});
