import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, it } from "vitest";
import { builderKernelBinds, hasBuilderKernel, kernelBinds } from "./kernel-binds.ts";

it("has an initramfs for builders, which set-up of an earlier version has not made", async () => {
  const imagesDir = await mkdtemp(path.join(tmpdir(), "images-"));
  try {
    await mkdir(path.join(imagesDir, "kernel"));
    for (const { source } of kernelBinds(imagesDir)) await writeFile(source, "");
    expect(hasBuilderKernel(imagesDir)).toBe(false);
    for (const { source } of builderKernelBinds(imagesDir)) await writeFile(source, "");
    expect(hasBuilderKernel(imagesDir)).toBe(true);
  } finally {
    await rm(imagesDir, { recursive: true, force: true });
  }
  const targets = [kernelBinds, builderKernelBinds].map((binds) => binds("").map(({ target }) => target));
  expect(targets[1]).toEqual(targets[0]);
});
