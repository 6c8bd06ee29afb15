import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { GIB, KIB } from "@vivarium/kit/sizes";
import { afterEach, beforeEach, expect, it } from "vitest";
import { run } from "../host/run.ts";
import { makeSealedDisk } from "./sealed-disk.ts";

const PASSPHRASE = "11".repeat(32);

let dir: string;
let disk: string;
beforeEach(async () => {
  dir = await mkdtemp(path.join(tmpdir(), "sealed-disk-"));
  disk = path.join(dir, "disk.qcow2");
  await makeSealedDisk(disk, { bytes: 10 * GIB, passphrase: PASSPHRASE });
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** Arguments that name the disk and its passphrase. */
async function opening(passphrase: string): Promise<string[]> {
  const key = path.join(dir, "passphrase");
  await writeFile(key, passphrase);
  const image = `driver=qcow2,file.filename=${disk},encrypt.format=luks,encrypt.key-secret=key`;
  return ["--object", `secret,id=key,file=${key}`, "--image-opts", image];
}

/** Runs commands of qemu-io on the disk. */
async function withDisk(passphrase: string, ...commands: string[]): Promise<string> {
  return await run("qemu-io", [
    ...commands.flatMap((command) => ["-c", command]),
    ...(await opening(passphrase)),
  ]);
}

const check = async () => await run("qemu-img", ["check", ...(await opening(PASSPHRASE))]);

it("is a disk of the size asked for, which QEMU finds nothing wrong with", async () => {
  const info = JSON.parse(await run("qemu-img", ["info", "--output=json", disk]));
  expect(info).toMatchObject({
    "virtual-size": 10 * GIB,
    format: "qcow2",
    encrypted: true,
    "format-specific": {
      data: { encrypt: { format: "luks", "cipher-alg": "aes-256", "cipher-mode": "xts" } },
    },
  });
  expect(await check()).toMatch(/No errors/);
  await withDisk(PASSPHRASE, "write -P 7 9G 1M");
  expect(await check()).toMatch(/No errors/);
});

it("keeps what is written into it, and its file does not show it", async () => {
  const content = path.join(dir, "content");
  const text = `canary${Math.random().toString(36).slice(2)}`;
  await writeFile(content, text.repeat(64 * KIB).slice(0, 256 * KIB));
  await withDisk(PASSPHRASE, `write -s ${content} 1M 256K`, "write -P 9 4G 64K");
  await withDisk(PASSPHRASE, "read -P 9 4G 64K", "read -P 0 2G 64K");
  const read = await withDisk(PASSPHRASE, "read -v 1M 512");
  expect(read.replaceAll(/^[0-9a-f]{8}:.{51}|\n/gm, "")).toContain(text);
  expect((await readFile(disk)).includes(text)).toBe(false);
  // The search finds what is there.
  expect((await readFile(content)).includes(text)).toBe(true);
});

it("does not open with another passphrase", async () => {
  await expect(withDisk("22".repeat(32), "read 0 512")).rejects.toThrow(/Invalid password/);
});

it("is another disk each time, with a key of its own", async () => {
  const other = path.join(dir, "other.qcow2");
  await makeSealedDisk(other, { bytes: 10 * GIB, passphrase: PASSPHRASE });
  expect((await readFile(other)).equals(await readFile(disk))).toBe(false);
});
