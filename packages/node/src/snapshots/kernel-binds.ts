/** The files that a guest boots from, besides its disk: kernel and agent of this version, whatever version made the disk. */
import { existsSync } from "node:fs";
import path from "node:path";
import type { Bind } from "../host/jail.ts";
import { JAIL_PATHS } from "../qemu/arguments.ts";

export const kernelBinds = (imagesDir: string): Bind[] => bindsOf(imagesDir, "initramfs.cpio.gz");

/** Those of a builder, whose agent is another program. */
export const builderKernelBinds = (imagesDir: string): Bind[] => bindsOf(imagesDir, BUILDER_INITRAMFS);

/** Whether set-up has made what a builder boots from. */
export const hasBuilderKernel = (imagesDir: string): boolean =>
  existsSync(path.join(kernelDir(imagesDir), BUILDER_INITRAMFS));

const BUILDER_INITRAMFS = "initramfs-builder.cpio.gz";
const kernelDir = (imagesDir: string) => path.join(imagesDir, "kernel");

function bindsOf(imagesDir: string, initramfs: string): Bind[] {
  const dir = kernelDir(imagesDir);
  return [
    { source: path.join(dir, "vmlinuz"), target: JAIL_PATHS.kernel, writable: false },
    { source: path.join(dir, initramfs), target: JAIL_PATHS.initramfs, writable: false },
  ];
}
