/** Digests that name content: an algorithm and the hash in lower-case hex digits. */
import { createHash, type Hash } from "node:crypto";
import { RegistryError } from "./registry-error.ts";

/** Hex digits by algorithm. */
const HEX_DIGITS: Record<string, number> = { sha256: 64, sha512: 128 };

export function isDigest(text: string): boolean {
  const [algorithm = "", hex = "", ...rest] = text.split(":");
  return rest.length === 0 && Object.hasOwn(HEX_DIGITS, algorithm) && isHex(hex, HEX_DIGITS[algorithm]);
}

function isHex(text: string, digits = 0): boolean {
  return text.length === digits && /^[0-9a-f]+$/.test(text);
}

/** A hash of the digest's algorithm. */
export function hashFor(digest: string): Hash {
  return createHash(algorithmOf(digest));
}

/** The digest of the hashed bytes, in the form of `like`. */
export function digestOf(hash: Hash, like: string): string {
  return `${algorithmOf(like)}:${hash.digest("hex")}`;
}

/** `what` names the content in the error. */
export function verifyBytes(what: string, bytes: Uint8Array, digest: string): void {
  const found = digestOf(hashFor(digest).update(bytes), digest);
  if (found !== digest)
    throw new RegistryError("bad_digest", `${what} has the digest ${found}, not ${digest}`);
}

/** Name of a file with this content: a digest without the colon. */
export function fileNameOf(digest: string): string {
  return digest.replace(":", "-");
}

function algorithmOf(digest: string): string {
  return digest.slice(0, digest.indexOf(":"));
}
