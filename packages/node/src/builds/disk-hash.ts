/**
 * The hash that names a disk's content: SHA-256 over the SHA-256 of each MiB of it. A disk of 8 GiB is mostly holes, whose
 * hash is known, so that none of them is read; a plain hash over all of it takes minutes on a slow host. It is computed on a
 * thread of its own, beside a daemon that answers other requests.
 */
import { createHash } from "node:crypto";
import { open } from "node:fs/promises";
import { Worker } from "node:worker_threads";
import { runHostCommand } from "@vivarium/kit/host-command";
import { MIB } from "@vivarium/kit/sizes";

const PIECE_BYTES = MIB;

/** `sha256:` and 64 hex digits. An abort ends the thread. */
export async function hashDiskAside(file: string, signal?: AbortSignal): Promise<string> {
  signal?.throwIfAborted();
  const worker = new Worker(new URL("./disk-hash-worker.ts", import.meta.url), { workerData: file });
  const end = () => void worker.terminate();
  signal?.addEventListener("abort", end, { once: true });
  return await new Promise<string>((resolve, reject) => {
    worker.once("message", resolve);
    worker.once("error", reject);
    worker.once("exit", (code) =>
      reject(new Error(`the thread that hashes a disk ended with status ${code}`)),
    );
  }).finally(() => signal?.removeEventListener("abort", end));
}

export async function hashDisk(file: string): Promise<string> {
  const disk = await open(file, "r");
  try {
    const { size } = await disk.stat();
    const hasData = await dataIn(file, size);
    const piece = Buffer.alloc(PIECE_BYTES);
    const zeros = sha256(piece);
    const all = createHash("sha256");
    for (let at = 0; at < size; at += PIECE_BYTES) {
      const bytes = Math.min(PIECE_BYTES, size - at);
      if (bytes === PIECE_BYTES && !hasData(at)) {
        all.update(zeros);
        continue;
      }
      const { bytesRead } = await disk.read(piece, 0, bytes, at);
      if (bytesRead !== bytes) throw new Error(`the disk ended at ${at + bytesRead} of ${size} bytes`);
      all.update(sha256(piece.subarray(0, bytes)));
    }
    return `sha256:${all.digest("hex")}`;
  } finally {
    await disk.close();
  }
}

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest();

/** Whether the piece at an offset may have data. The disk's own format is not looked at: it is raw, whatever it says. */
async function dataIn(file: string, size: number): Promise<(at: number) => boolean> {
  const { code, stdout } = await runHostCommand("qemu-img", ["map", "--output=json", "-f", "raw", file]);
  if (code !== 0) return () => true;
  const pieces = new Uint8Array(Math.ceil(size / PIECE_BYTES));
  for (const { start, length, data } of JSON.parse(stdout) as {
    start: number;
    length: number;
    data: boolean;
  }[])
    if (data) pieces.fill(1, Math.floor(start / PIECE_BYTES), Math.ceil((start + length) / PIECE_BYTES));
  return (at) => pieces[at / PIECE_BYTES] === 1;
}
