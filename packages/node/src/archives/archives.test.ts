import { existsSync, readdirSync, readFileSync } from "node:fs";
import { readFile, rename, rm, stat, utimes, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { ArchiveHost, TestSpace } from "../../test-support/archive-host.ts";
import { filesOf, readManifest, verifyFiles } from "../snapshots/manifest.ts";
import { PAGE_BYTES } from "../snapshots/page-sums.ts";

async function bytesOf(dir: string) {
  const files = filesOf(await readManifest(dir)).map(async (name) => [
    name,
    await readFile(path.join(dir, name)),
  ]);
  return Object.fromEntries(await Promise.all(files));
}

async function flipByte(file: string, at: number): Promise<void> {
  const content = await readFile(file);
  content[at] = (content[at] ?? 0) ^ 1;
  const { atime, mtime } = await stat(file);
  await writeFile(file, content);
  // Nobody has seen it.
  await utimes(file, atime, mtime);
}

test("a state that goes through a store comes back with its bytes above its baseline, and can be loaded", async () => {
  await using host = await ArchiveHost.make();
  const space = new TestSpace();
  const id = await host.save();
  const before = await host.status(id);
  const base = await host.baselineId();
  expect(before).toMatchObject({ baseline_id: base, used_at: expect.any(String) });
  const dir = host.snapshots.dirOf(id);
  const bytes = await bytesOf(dir);
  const { contents, differing_bytes } = await host.mustPack(space, id, base);
  expect(differing_bytes).toBeLessThan(10 * PAGE_BYTES);
  await rm(dir, { recursive: true });
  const unpacked = await host.unpack(space, id, { contents, base });
  expect(unpacked).toMatchObject({
    unpacked: { snapshot_id: id, baseline_id: base, created_at: before.created_at },
  });
  expect(await bytesOf(dir)).toEqual(bytes);
  expect((await stat(path.join(dir, "base.raw"))).ino).toBe(
    (await stat(path.join(host.baselineDir, "base.raw"))).ino,
  );
  await verifyFiles(host.sums, { dir, manifest: await readManifest(dir) });
});

test("a state with a damaged page is not packed", async () => {
  await using host = await ArchiveHost.make();
  const space = new TestSpace();
  const id = await host.save();
  await flipByte(path.join(host.snapshots.dirOf(id), "mem"), 5);
  const base = await host.baselineId();
  expect(await host.pack(space, id, base)).toMatchObject({ refused: { code: "snapshot_damaged" } });
  expect(space.objects.size).toBe(0);
});

test("a base that has changed since is noticed before anything of the state is visible", async () => {
  await using host = await ArchiveHost.make();
  const space = new TestSpace();
  const id = await host.save();
  const base = await host.baselineId();
  const { contents } = await host.mustPack(space, id, base);
  await rm(host.snapshots.dirOf(id), { recursive: true });
  await flipByte(path.join(host.baselineDir, "mem"), 20 * PAGE_BYTES);
  const refused = { refused: { code: "archive_unusable", reason: "damaged" } };
  expect(await host.unpack(space, id, { contents, base })).toMatchObject(refused);
  expect(await host.folders()).toEqual([]);
});

test("a node with another bake of the template unpacks the baseline first, and then the state", async () => {
  await using one = await ArchiveHost.make();
  await using other = await ArchiveHost.make();
  const [space, ofBaseline] = [new TestSpace(), new TestSpace()];
  const id = await one.save();
  const base = await one.baselineId();
  expect(await other.baselineId()).not.toBe(base);
  const baseline = await one.mustPack(ofBaseline, base);
  const { contents } = await one.mustPack(space, id, base);
  await expect(other.unpack(space, id, { contents, base })).rejects.toMatchObject({ code: "base_not_found" });
  const fetched = await other.unpack(ofBaseline, base, { contents: baseline.contents });
  expect(fetched).toMatchObject({ unpacked: { snapshot_id: base } });
  expect(await other.unpack(space, id, { contents, base })).toMatchObject({
    unpacked: { snapshot_id: id, baseline_id: base },
  });
  expect(await bytesOf(other.snapshots.dirOf(id))).toEqual(await bytesOf(one.snapshots.dirOf(id)));
  // The unpacked baseline is a base like its own.
  const again = await other.mustPack(space, id, base);
  expect(again.chunks.length).toBeGreaterThan(0);
  expect(await other.folders()).toEqual([base, id].toSorted());
});

/** Children of this process, whichever thread has made them. */
function children(): number[] {
  const lists = readdirSync("/proc/self/task").map((task) => `/proc/self/task/${task}/children`);
  const read = (file: string) => readFileSync(file, "utf8").split(" ").filter(Boolean).map(Number);
  return lists.filter((file) => existsSync(file)).flatMap(read);
}

function nicenessOf(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
  return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[16]);
}

test("an unpacking that is ended leaves no process and no folder, and gives way while it runs", async () => {
  await using host = await ArchiveHost.make({ niceness: 7 });
  const space = new TestSpace();
  const id = await host.save();
  const base = await host.baselineId();
  const { contents } = await host.mustPack(space, id, base);
  await rename(host.snapshots.dirOf(id), path.join(host.dir, "gone"));
  const { promise: isAsked, resolve: noteAsk } = Promise.withResolvers<void>();
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  space.onAsk = async (name) => {
    if (name === contents) return;
    noteAsk();
    await released;
  };
  const before = children();
  const unpacking = host.unpack(space, id, { contents, base });
  await isAsked;
  const own = children().filter((pid) => !before.includes(pid));
  expect(own.map(nicenessOf)).toEqual([Math.min(nicenessOf(process.pid) + 7, 19)]);
  const ending = host.archives.end(id);
  release();
  await ending;
  expect(await unpacking).toBeUndefined();
  expect(own.filter((pid) => existsSync(`/proc/${pid}`))).toEqual([]);
  expect(await host.folders()).toEqual([]);
  space.onAsk = () => {};
  expect(await host.unpack(space, id, { contents, base })).toMatchObject({ unpacked: { snapshot_id: id } });
});
