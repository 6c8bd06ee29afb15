/** Bytes that are nearly correct. */
import type { Random } from "../chaos/random.ts";

const LENGTHS = [0, 1, 0x7fff, 0xffff, 0x1_0000, 0x1_0001, 0x7fff_ffff, 0xffff_ffff];

export function someBytes(random: Random, most: number): Buffer {
  return Buffer.from(Array.from({ length: random.below(most + 1) }, () => random.below(256)));
}

/** No change, one or a few: flipped, cut, doubled, strange lengths, foreign bytes in between. */
export function mutate(random: Random, bytes: Buffer): Buffer {
  let changed = bytes;
  for (let left = random.below(4); left > 0; left--) changed = mutateOnce(random, changed);
  return changed;
}

function mutateOnce(random: Random, bytes: Buffer): Buffer {
  const at = random.below(bytes.length + 1);
  const to = at + random.below(bytes.length - at + 1);
  const out = Buffer.from(bytes);
  switch (random.below(6)) {
    case 0:
      if (at < out.length) out[at] = random.below(256);
      return out;
    case 1:
      return out.subarray(0, at);
    case 2:
      return Buffer.concat([out.subarray(0, to), out.subarray(at)]);
    case 3:
      return Buffer.concat([out.subarray(0, at), out.subarray(to)]);
    case 4:
      if (at + 4 <= out.length) out.writeUInt32BE(random.pick(LENGTHS), at);
      return out;
    default:
      return Buffer.concat([out.subarray(0, at), someBytes(random, 40), out.subarray(at)]);
  }
}

/** The same bytes, cut into pieces or whole. */
export function cut(random: Random, bytes: Buffer): Buffer[] {
  const chunks: Buffer[] = [];
  // Large inputs in large pieces: only pieces smaller than a frame are interesting.
  const most = Math.max(random.pick([1, 7, 100, 100_000]), Math.ceil(bytes.length / 100));
  for (let at = 0; at < bytes.length; ) {
    const end = at + 1 + random.below(most);
    chunks.push(bytes.subarray(at, end));
    at = end;
  }
  return chunks;
}
