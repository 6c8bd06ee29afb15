import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { checkBaselines, checkBuilder, checkDataDisk } from "./storage.ts";

let imagesDir: string;
beforeEach(() => {
  imagesDir = mkdtempSync(path.join(tmpdir(), "viv-doctor-"));
});
afterEach(() => rmSync(imagesDir, { recursive: true }));

function bake(size: string, manifest: string): string {
  const dir = path.join(imagesDir, "templates/base/current", size);
  mkdirSync(dir, { recursive: true });
  writeFileSync(path.join(dir, "manifest.json"), manifest);
  return dir;
}

const [hasKvm, hasNone] = [() => true, () => false];
const EMULATED = '{"accelerator": "tcg", "cpu": {"model": "max"}}';

test("baselines are listed with how they were made; without any no session starts", () => {
  expect(checkBaselines(imagesDir)).toMatchObject({ status: "fail", found: "none" });
  bake("small", '{"accelerator": "kvm", "cpu": {"model": "x86-64-v3"}}');
  bake("large", '{"accelerator": "kvm"}');
  bake("medium", '{"accelerator":');
  expect(checkBaselines(imagesDir, { hasKvm })).toEqual({
    name: "baselines",
    status: "ok",
    found: "base/large (KVM), base/small (KVM, CPU model x86-64-v3)",
  });
});

test("an emulated one is a warning where KVM opens, unless emulation was asked for", () => {
  const dir = bake("small", EMULATED);
  expect(checkBaselines(imagesDir, { hasKvm })).toMatchObject({
    status: "warn",
    found: "base/small (emulated, CPU model max)",
    remedy: expect.stringContaining(`rm -r ${dir}, then ./setup`),
  });
  expect(checkBaselines(imagesDir, { hasKvm, accelerator: "tcg" }).status).toBe("ok");
  expect(checkBaselines(imagesDir, { hasKvm: hasNone }).status).toBe("ok");
});

test("a node without a builder makes no templates of images, and set-up is what it wants", () => {
  expect(checkBuilder(imagesDir)).toMatchObject({
    status: "warn",
    found: expect.stringContaining("lacks kernel/initramfs-builder.cpio.gz"),
    cost: expect.stringContaining("viv template import is refused"),
    remedy: expect.stringContaining("./setup"),
  });
  mkdirSync(path.join(imagesDir, "kernel"));
  writeFileSync(path.join(imagesDir, "kernel/initramfs-builder.cpio.gz"), "");
  expect(checkBuilder(imagesDir)).toMatchObject({ name: "builder", status: "ok" });
});

test("the disk of the database and the logs is a finding when little of it is free", async () => {
  expect(await checkDataDisk(imagesDir, 1)).toMatchObject({ status: "ok" });
  expect(await checkDataDisk(imagesDir, Number.MAX_SAFE_INTEGER)).toMatchObject({
    status: "warn",
    found: expect.stringContaining(imagesDir),
    cost: expect.stringContaining("the database stops"),
  });
});
