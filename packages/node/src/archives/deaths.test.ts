import { spawn } from "node:child_process";
import { once } from "node:events";
import { rename } from "node:fs/promises";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { identify, isAlive, type ProcessIdentity } from "@vivarium/kit/process-identity";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { expect, test } from "vitest";
import { ArchiveHost, TestSpace } from "../../test-support/archive-host.ts";
import type { UnpackingForEver } from "../../test-support/unpack-for-ever.ts";
import { readManifest, verifyFiles } from "../snapshots/manifest.ts";

const PROGRAM = path.join(import.meta.dirname, "../../test-support/unpack-for-ever.ts");
const PATIENCE_MS = 120_000 * SLOWNESS;
const gone = (host: ArchiveHost, id: string) =>
  rename(host.snapshots.dirOf(id), path.join(host.dir, `gone-${id}`));

test.each(["pack.verified", "pack.sent"])(
  "a packing that dies at %s has no result, and the next one sends no chunk again",
  async (crashAt) => {
    await using host = await ArchiveHost.make({ crashAt });
    const space = new TestSpace();
    const id = await host.save();
    const base = await host.baselineId();
    expect(await host.pack(space, id, base)).toBeUndefined();
    const there = new Set(space.objects.keys());
    expect(there.size > 0).toBe(crashAt === "pack.sent");
    const again: string[] = [];
    space.onAsk = (name) => void (there.has(name) && again.push(name));
    const { contents } = await host.mustPack(space, id, base);
    expect(again).toEqual([]);
    await gone(host, id);
    expect(await host.unpack(space, id, { contents, base })).toMatchObject({ unpacked: { snapshot_id: id } });
  },
  PATIENCE_MS,
);

test.each(["unpack.written", "unpack.described", "unpack.visible"])(
  "an unpacking that dies at %s leaves the whole state or nothing, and the next one succeeds",
  async (crashAt) => {
    await using host = await ArchiveHost.make({ crashAt });
    const space = new TestSpace();
    const id = await host.save();
    const base = await host.baselineId();
    const { contents } = await host.mustPack(space, id, base);
    await gone(host, id);
    expect(await host.unpack(space, id, { contents, base })).toBeUndefined();
    expect(await host.folders()).toEqual(crashAt === "unpack.visible" ? [id] : []);
    expect(await host.unpack(space, id, { contents, base })).toMatchObject({ unpacked: { snapshot_id: id } });
    const dir = host.snapshots.dirOf(id);
    await verifyFiles(host.sums, { dir, manifest: await readManifest(dir) });
    expect(await host.folders()).toEqual([id]);
  },
  PATIENCE_MS,
);

test(
  "a daemon that is killed takes the process that unpacks with it, and the next one removes what that left",
  async () => {
    await using host = await ArchiveHost.make();
    const space = new TestSpace();
    const id = await host.save();
    const { contents } = await host.mustPack(space, id);
    await gone(host, id);
    const work: UnpackingForEver = {
      ...{ dataDir: host.dir, id, archiveId: space.archiveId, contents, keys: space.keys },
      object: space.objects.get(contents)?.toString("base64") ?? "",
    };
    const daemon = spawn(process.execPath, [PROGRAM, JSON.stringify(work)], {
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(daemon, "exit");
    const [pid] = (await once(daemon.stdout, "data")) as [Buffer];
    const worker = identify(Number(String(pid)));
    expect(worker).toBeDefined();
    expect(await host.folders()).toEqual([expect.stringMatching(/\.partial$/)]);
    daemon.kill("SIGKILL");
    await ended;
    await untilGone(worker as ProcessIdentity);
    await host.snapshots.removeUnpublished();
    expect(await host.folders()).toEqual([]);
    expect(await host.unpack(space, id, { contents })).toMatchObject({ unpacked: { snapshot_id: id } });
  },
  PATIENCE_MS,
);

async function untilGone(worker: ProcessIdentity): Promise<void> {
  for (let waited = 0; isAlive(worker); waited += 50) {
    expect(waited).toBeLessThan(PATIENCE_MS / 2);
    await sleep(50);
  }
}
