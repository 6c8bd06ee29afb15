/** A saved state that was packed into an object store, removed from the host and unpacked again wakes as if it had stayed. */
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, rmSync, statSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createLog } from "@vivarium/kit/log";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { Client } from "@vivarium/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { ChunksInObjects } from "../../packages/archive/src/chunk-store.ts";
import { packFolder } from "../../packages/archive/src/pack.ts";
import { readBack } from "../../packages/archive/src/read-back.ts";
import { unpackFolder } from "../../packages/archive/src/unpack.ts";
import { describeAgain } from "../../packages/node/src/snapshots/describe-again.ts";
import { filesOf, readManifest } from "../../packages/node/src/snapshots/manifest.ts";
import { SumsThread } from "../../packages/node/src/snapshots/sums-thread.ts";
import { DirectoryStore } from "../../packages/objects/src/directory-store.ts";
import { eventually } from "../support/eventually.ts";
import { sh } from "../support/http.ts";
import { IMAGES, type Service, startService } from "../support/service.ts";

const MIB = 1024 * 1024;
const sums = new SumsThread({ log: createLog("test", "silent") });
let own: Service;
let client: Client;
let dir: string;
let objects: DirectoryStore;

beforeAll(async () => {
  own = await startService();
  client = new Client({ url: own.facts.url, apiKey: own.facts.apiKey, retries: 0 });
  dir = await mkdtemp(join(tmpdir(), "archived-"));
  objects = await DirectoryStore.open(dir);
});
afterAll(async () => {
  await own?.stop();
  await sums.close();
  await rm(dir, { recursive: true, force: true });
});

async function run(id: string, script: string): Promise<string> {
  const done = await client.sessions.exec(id, { command: sh(script), timeout_ms: 60_000 * SLOWNESS });
  expect(done, script).toMatchObject({ exit_code: 0 });
  return done.stdout;
}

/** Packs the only saved state of the service, removes it and unpacks it again. Returns what was packed. */
async function throughStore(label: string) {
  const parent = join(own.facts.dataDir, "pool/s");
  // The one before it is removed behind the wake.
  const [name = ""] = await eventually(async () => {
    const names = readdirSync(parent);
    expect(names).toHaveLength(1);
    return names;
  });
  const hot = join(parent, name);
  const manifest = await readManifest(hot);
  const { template, version, size } = manifest;
  const base = {
    dir: join(IMAGES, "templates", template, version, size),
    id: `${template}@${version}/${size}`,
  };
  const space = { store: new ChunksInObjects(objects, `o/${label}/`), secret: randomBytes(32) };
  const key = { key: randomBytes(32), label };
  const source = { dir: hot, files: [...filesOf(manifest), "manifest.json"], base };
  const packed = await packFolder(space, key, source);
  rmSync(hot, { recursive: true });
  await unpackFolder(
    space,
    key,
    { contents: packed.contents, dir: hot },
    { base, beforeVisible: async (partial) => void (await describeAgain(partial, sums)) },
  );
  expect(await readBack(space, key, packed.contents)).toEqual([]);
  expect(statSync(join(hot, "base.raw")).ino).toBe(statSync(join(base.dir, "base.raw")).ino);
  return { ...packed, isSealed: existsSync(join(hot, "mem.sealed")) };
}

const cases: [string, Parameters<Client["sessions"]["create"]>[0], boolean][] = [
  ["plain", {}, false],
  ["sealed", { secrets: { TOKEN: "a secret" } }, true],
];

test.for(cases)(
  "a session whose state is %s has its memory, processes and files",
  async ([label, create, isSealed]) => {
    const { session_id: id } = await client.sessions.create(create);
    await run(
      id,
      "head -c 3000000 /dev/urandom > kept; sha256sum kept > sum; cp kept /dev/shm/; sleep 100000 & echo $! > pid",
    );
    await client.sessions.pause(id);
    const packed = await throughStore(label);
    expect(packed.isSealed).toBe(isSealed);
    // The baseline's memory alone has more than a hundred.
    expect(packed.differing).toBeLessThan(80 * MIB);
    const checked = await run(
      id,
      "sha256sum -c sum && (cd /dev/shm && sha256sum -c /workspace/sum) && kill -0 $(cat pid) && echo lives",
    );
    expect(checked).toContain("lives");
    // A state that is saved from it stands for itself again.
    await client.sessions.pause(id);
    await throughStore(`${label}-2`);
    expect(await run(id, "sha256sum -c sum")).toContain("OK");
    await client.sessions.delete(id);
  },
);
