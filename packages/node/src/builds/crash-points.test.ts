/** Deaths of the daemon while it imports an image: the next daemon says so, continues with what was pulled, and leaves nothing of a deleted import. */
import { existsSync } from "node:fs";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { pipeline } from "node:stream/promises";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { makeImage, REPOSITORY, serveImage, sha256 } from "@vivarium/oci/test-support/image";
import { REGISTRY } from "@vivarium/oci/test-support/pull";
import { StandIn } from "@vivarium/oci/test-support/stand-in";
import { afterAll, beforeAll, expect, test } from "vitest";
import { dieAt } from "../../test-support/die-at.ts";
import { layersDir } from "./run-build.ts";

const PATIENCE_MS = 240_000 * SLOWNESS;
const id = `tpl_${"1".repeat(21)}`;
const image = makeImage();

let dataDir: string;
let standIn: StandIn;
/** Leads to the stand-in, from another process. */
const bridge = createServer((socket) => {
  const both = standIn.dial(REGISTRY, 443, new AbortController().signal);
  // Either end breaks off when the process dies.
  both.then((other) => Promise.all([pipeline(socket, other), pipeline(other, socket)])).catch(() => {});
});
beforeAll(async () => {
  dataDir = await mkdtemp(path.join(tmpdir(), "build-deaths-"));
  standIn = await StandIn.start();
  standIn.serve(REGISTRY, serveImage(image));
  await writeFile(path.join(dataDir, "ca.pem"), standIn.ca);
  await new Promise<void>((listens) => bridge.listen(0, "127.0.0.1", listens));
});
afterAll(async () => {
  await standIn[Symbol.asyncDispose]();
  await new Promise((closed) => bridge.close(closed));
  await rm(dataDir, { recursive: true, force: true });
});

const buildsDir = () => path.join(dataDir, "pool/b");

/** The builds that the process that died found at its start. */
async function die(crashAt: string, isRemoval = false) {
  const { port } = bridge.address() as AddressInfo;
  const reference = `${REGISTRY}/${REPOSITORY}:1`;
  const step = isRemoval
    ? ({ do: "remove build", id } as const)
    : ({ do: "build", id, reference, port } as const);
  const env = { NODE_EXTRA_CA_CERTS: path.join(dataDir, "ca.pem") };
  return JSON.parse(await dieAt({ dataDir, crashAt, step }, env));
}

/** Digests of the layers that are whole on disk. */
async function wholeLayers(): Promise<string[]> {
  const dir = layersDir(path.join(buildsDir(), id));
  const names = existsSync(dir) ? await readdir(dir) : [];
  const found = await Promise.all(names.map(async (name) => sha256(await readFile(path.join(dir, name)))));
  return image.layers.map(({ digest }) => digest).filter((digest) => found.includes(digest));
}

const asked = (digest: string) => standIn.requests.filter(({ path: at }) => at.endsWith(digest)).length;

const INTERRUPTED = {
  ...{ build_id: id, state: "failed" },
  failure: { word: "interrupted", is_transient: true, message: expect.any(String) },
};

test("an import that dies at any point of the pull is continued, and fetches no layer twice", {
  timeout: PATIENCE_MS,
}, async () => {
  expect(await die("build.recorded")).toEqual([]);
  expect(standIn.requests).toEqual([]);
  expect(await die("build.resolved")).toEqual([INTERRUPTED]);
  expect(await wholeLayers()).toEqual([]);
  const resolved = { manifest_digest: image.manifest, reference: expect.stringContaining("@sha256:") };
  expect(await die("build.layer")).toMatchObject([{ ...INTERRUPTED, stage: "pull", image: resolved }]);
  const first = await wholeLayers();
  expect(first.length).toBeGreaterThan(0);
  const before = first.map(asked);
  expect(await die("build.pulled")).toMatchObject([{ ...INTERRUPTED, stage: "pull", image: resolved }]);
  expect(await wholeLayers()).toEqual(image.layers.map(({ digest }) => digest));
  expect(first.map(asked)).toEqual(before);
});

test("an import whose removal dies is gone, and the next daemon clears away its rest", {
  timeout: PATIENCE_MS,
}, async () => {
  expect(await die("build.removed", true)).toMatchObject([INTERRUPTED]);
  expect(await readdir(buildsDir())).toEqual([`${id}.removed`]);
  await rm(path.join(dataDir, "crashed-at-build.recorded"));
  expect(await die("build.recorded")).toEqual([]);
  expect(await readdir(buildsDir())).toEqual([id]);
});
