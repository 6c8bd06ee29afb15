/** Keeps the device state of a machine in a sealed file. It is small enough to be in the daemon's memory at once. */
import { closeSync, openSync } from "node:fs";
import { MIB } from "@vivarium/kit/sizes";
import { UnusableSnapshot } from "./page-sums.ts";
import { readSealed, SEGMENT_BYTES, SealedWriter, type Sealing } from "./sealed-file.ts";

/** Largest accepted device state: a microvm's has tens of KiB, and a QEMU that writes much more was taken over. */
export const STATE_LIMIT_BYTES = 64 * MIB;

export function writeSealedBytes(name: string, sealing: Sealing, bytes: Buffer): void {
  const fd = openSync(name, "wx", 0o600);
  try {
    const file = new SealedWriter(fd, sealing);
    for (let at = 0; at < bytes.length; at += SEGMENT_BYTES)
      file.write(bytes.subarray(at, at + SEGMENT_BYTES));
    file.end();
  } finally {
    closeSync(fd);
  }
}

export function readSealedBytes(name: string, sealing: Sealing): Buffer {
  const fd = openSync(name, "r");
  try {
    const parts: Buffer[] = [];
    let bytes = 0;
    for (const part of readSealed(fd, sealing)) {
      bytes += part.length;
      if (bytes > STATE_LIMIT_BYTES) throw new UnusableSnapshot("the sealed device state is too large");
      parts.push(part);
    }
    return Buffer.concat(parts);
  } finally {
    closeSync(fd);
  }
}
