/**
 * Reads and writes the text form of key-encryption keys: `kek_<number>:<32 bytes in base64url>`, one a line or separated by
 * commas. The last one seals; the others only open. Lines that begin with # are comments.
 */
import { randomBytes } from "node:crypto";

export const KEK_BYTES = 32;

/** A key-encryption key: it seals the data keys of sessions, and nothing else. */
export interface Kek {
  /** `kek_<number>`; rows name the key by it. */
  id: string;
  key: Buffer;
}

const LINE = /^(kek_[1-9][0-9]{0,8}):([A-Za-z0-9_-]{43}=?)$/;

/** The keys of a text, in its order. `source` begins the errors, which repeat nothing of a key. */
export function parseKeks(text: string, source: string): Kek[] {
  const keks: Kek[] = [];
  const lines = text.split("\n").filter((line) => !line.trim().startsWith("#"));
  for (const [index, part] of lines.join(",").split(",").entries()) {
    const entry = part.trim();
    if (entry === "") continue;
    const [, id = "", encoded = ""] = LINE.exec(entry) ?? [];
    const key = Buffer.from(encoded, "base64url");
    if (key.length !== KEK_BYTES)
      throw new Error(`${source}: key ${index + 1} must be kek_<number>:<${KEK_BYTES} bytes in base64url>`);
    if (keks.some((other) => other.id === id)) throw new Error(`${source}: there are two keys called ${id}`);
    keks.push({ id, key });
  }
  if (keks.length === 0) throw new Error(`${source}: contains no key`);
  return keks;
}

/** A new key, numbered after the others. */
export function newKek(others: readonly Kek[]): Kek {
  const numbers = others.map(({ id }) => Number(id.slice("kek_".length)));
  return { id: `kek_${Math.max(0, ...numbers) + 1}`, key: randomBytes(KEK_BYTES) };
}

export function kekLine({ id, key }: Kek): string {
  return `${id}:${key.toString("base64url")}\n`;
}
