/** The files that a guest boots from, besides its disk: kernel and agent of this version, whatever version made the disk. */
import path from "node:path";
import type { Bind } from "../host/jail.ts";
import { JAIL_PATHS } from "../qemu/arguments.ts";

export function kernelBinds(imagesDir: string): Bind[] {
  const kernel = path.join(imagesDir, "kernel");
  return [
    { source: path.join(kernel, "vmlinuz"), target: JAIL_PATHS.kernel, writable: false },
    { source: path.join(kernel, "initramfs.cpio.gz"), target: JAIL_PATHS.initramfs, writable: false },
  ];
}
