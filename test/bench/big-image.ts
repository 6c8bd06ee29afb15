/** An image of a given size for imports: tools, and layers of large and small files of which one half compresses well. */
import { randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { MadeImage } from "../../packages/oci/test-support/image.ts";
import { makeImageOf, putTools } from "../support/small-image.ts";

const MIB = 1024 * 1024;
const SMALL_BYTES = 16 * 1024;
/** A layer is packed in memory. */
const LAYER_MIB = 256;
/** One MiB in so many is in small files. */
const SMALL_EVERY = 4;

/** `mib`: what its files hold, without the tools. */
export function makeBigImage(mib: number): MadeImage {
  const layers: ((root: string) => void)[] = [putTools];
  for (let first = 0; first < mib; first += LAYER_MIB)
    layers.push((root) => putFiles(root, first, Math.min(first + LAYER_MIB, mib)));
  return makeImageOf(layers);
}

function putFiles(root: string, first: number, end: number): void {
  for (let n = first; n < end; n++) {
    const folder = join(root, "srv/data", String(n));
    mkdirSync(folder, { recursive: true });
    const bytes = n % SMALL_EVERY === 0 ? SMALL_BYTES : MIB;
    for (let at = 0; at < MIB; at += bytes) writeFileSync(join(folder, String(at)), halfRandom(bytes));
  }
}

function halfRandom(bytes: number): Buffer {
  return Buffer.concat([randomBytes(bytes / 2), Buffer.alloc(bytes / 2, "as text and programs do ")]);
}
