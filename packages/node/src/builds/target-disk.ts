/**
 * The disk that a builder fills: one sparse file with an empty ext4 file system. The host makes it, and never reads it
 * afterwards but as bytes.
 */
import { chmod, chown, open, rename, stat } from "node:fs/promises";
import path from "node:path";
import { syncPath } from "@vivarium/kit/durable-file";
import { GIB } from "@vivarium/kit/sizes";
import { run } from "../host/run.ts";
import { hashDiskAside } from "./disk-hash.ts";

export const TARGET_BYTES = 8 * GIB;
/** More than the builder's limit (`guest/agent/src/build/limits.rs`), which so is met before the disk is full. */
const INODES = 524_288;

export interface FinishedDisk {
  path: string;
  /** The hash of its content, as `disk-hash.ts` defines it. */
  hash: string;
  sizeBytes: number;
  /** Bytes that it takes on the host. */
  storedBytes: number;
}

export async function makeTarget(file: string): Promise<void> {
  const made = await open(file, "wx", 0o600);
  try {
    await made.truncate(TARGET_BYTES);
  } finally {
    await made.close();
  }
  const how = "root_owner=0:0,lazy_itable_init=1,lazy_journal_init=1,nodiscard";
  const journal = ["-J", "size=64"];
  await run("mkfs.ext4", [
    ...["-q", "-F", "-L", "root", "-b", "4096", "-m", "1", "-N", String(INODES), ...journal, "-E", how, file],
  ]);
}

/** Takes the disk from the builder, which has ended: hashed, read-only and durable under its new name. */
export async function finishTarget(
  file: string,
  finished: string,
  signal: AbortSignal,
): Promise<FinishedDisk> {
  await chown(file, 0, 0);
  await chmod(file, 0o444);
  await syncPath(file);
  const { size, blocks } = await stat(file);
  if (size !== TARGET_BYTES) throw new Error(`the builder left a disk of ${size} bytes`);
  const hash = await hashDiskAside(file, signal);
  await rename(file, finished);
  await syncPath(path.dirname(finished));
  return { path: finished, hash, sizeBytes: size, storedBytes: blocks * 512 };
}
