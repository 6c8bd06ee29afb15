import { writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { readKernelRelease } from "./kernel-release.ts";

inOwnDirectories();

function image(release: string, magic = "HdrS"): Buffer {
  const bytes = Buffer.alloc(0x4000);
  bytes.write(magic, 0x202);
  bytes.writeUInt16LE(0x3000, 0x20e);
  bytes.write(`${release} (builder@host) #1 SMP\0`, 0x3200);
  return bytes;
}

test("the release of a kernel is read from its image", async () => {
  const file = path.join(dir, "vmlinuz");
  await writeFile(file, image("6.12.48+deb13-cloud-amd64"));
  expect(await readKernelRelease(file)).toBe("6.12.48+deb13-cloud-amd64");
});

test("another format, a short file and none have no release", async () => {
  const file = path.join(dir, "vmlinuz");
  for (const bytes of [image("6.1", "none"), Buffer.from("short")]) {
    await writeFile(file, bytes);
    expect(await readKernelRelease(file)).toBeUndefined();
  }
  expect(await readKernelRelease(path.join(dir, "none"))).toBeUndefined();
});
