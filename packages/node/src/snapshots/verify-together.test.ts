import { link, mkdir, mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { createLog } from "@vivarium/kit/log";
import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import { makeLoadable, QEMU } from "../../test-support/loadable.ts";
import { type Loadable, SNAPSHOT_FILES, verifyLoadable } from "./manifest.ts";
import { SumsThread } from "./sums-thread.ts";
import { Verifications } from "./verify-together.ts";

const CHILDREN = 16;

const sums = new SumsThread({ log: createLog("test", "silent") });
afterAll(() => sums.close());

let root: string;
let source: Loadable;
/** Verifications that have started. */
let begun: number;
/** Verifications wait for this before they read. */
let mayRead: Promise<void>;
let verifications: Verifications;

beforeEach(async () => {
  root = await mkdtemp(path.join(tmpdir(), "verify-together-"));
  source = await makeLoadable(path.join(root, "source"));
  begun = 0;
  mayRead = Promise.resolve();
  verifications = new Verifications(async (loadable) => {
    begun++;
    await mayRead;
    await verifyLoadable({ qemu: QEMU, sums }, loadable);
  });
});
afterEach(() => rm(root, { recursive: true, force: true }));

/** Links in a folder of its own, as a machine has them. */
async function linked(name: string, { dir, manifest } = source): Promise<Loadable> {
  const own = path.join(root, name);
  await mkdir(own);
  for (const file of SNAPSHOT_FILES) await link(path.join(dir, file), path.join(own, file));
  return { dir: own, manifest };
}

const children = () => Promise.all(Array.from({ length: CHILDREN }, (_, i) => linked(`child${i}`)));

/** In place, so that every link shows it. */
async function damage(file: string): Promise<void> {
  const content = await readFile(path.join(source.dir, file));
  content[0] = (content[0] ?? 0) ^ 1;
  await writeFile(path.join(source.dir, file), content);
}

const hold = (): (() => void) => {
  const { promise, resolve } = Promise.withResolvers<void>();
  mayRead = promise;
  return resolve;
};

/** Resolves once all of them wait for a started verification. */
async function allAsked(outcomes: Promise<void>[]): Promise<void> {
  for (const outcome of outcomes) outcome.catch(() => {});
  await expect.poll(() => begun).toBeGreaterThan(0);
  // The file system answers in order, so the files behind the links have been looked up by then.
  for (let i = 0; i < 50; i++) await stat(root);
}

test("machines loaded from the same files at once share one verification", async () => {
  const release = hold();
  const all = (await children()).map((child) => verifications.verify(child));
  await allAsked(all);
  release();
  await Promise.all(all);
  expect(begun).toBe(1);
});

test.each(["state", "mem", "mem.sums", "disk.qcow2", "layer.qcow2"])(
  "%s is damaged for all of them, whether they share the look or not",
  async (file) => {
    await damage(file);
    const all = (await children()).map((child) => verifications.verify(child));
    const outcomes = await Promise.allSettled(all);
    for (const outcome of outcomes)
      expect(outcome).toMatchObject({
        reason: { message: expect.stringContaining("damaged"), name: "Error" },
      });
  },
);

test("damage found by a verification is reported to all who share it", async () => {
  const release = hold();
  await damage("state");
  const all = (await children()).map((child) => verifications.verify(child));
  await allAsked(all);
  release();
  for (const outcome of await Promise.allSettled(all))
    expect(outcome).toMatchObject({ reason: { message: "state is damaged" } });
  expect(begun).toBe(1);
});

test("a finished verification is not reused: damage since then is found", async () => {
  const [first, second, third] = await children();
  await verifications.verify(first as Loadable);
  await damage("layer.qcow2");
  await expect(verifications.verify(second as Loadable)).rejects.toThrow("layer.qcow2 is damaged");
  await damage("layer.qcow2");
  await verifications.verify(third as Loadable);
  expect(begun).toBe(3);
});

test("if the machine whose verification is shared goes away before it ends, the others verify for themselves", async () => {
  const release = hold();
  const [gone, ...others] = await children();
  const first = verifications.verify(gone as Loadable);
  await allAsked([first]);
  const rest = others.map((child) => verifications.verify(child));
  await allAsked(rest);
  await rm((gone as Loadable).dir, { recursive: true });
  release();
  await expect(first).rejects.toThrow("ENOENT");
  await Promise.all(rest);
  expect(begun).toBe(2);
});

test("other files, and other claims about the same files, are verified separately", async () => {
  const release = hold();
  const other = await makeLoadable(path.join(root, "other"));
  const claims = { ...source.manifest, qemu_build: "none" };
  const whole = [source, other].map((loadable) => verifications.verify(loadable));
  const claimed = verifications.verify({ dir: source.dir, manifest: claims });
  await allAsked([...whole, claimed]);
  release();
  await Promise.all(whole);
  await expect(claimed).rejects.toThrow("QEMU build");
  expect(begun).toBe(3);
});
