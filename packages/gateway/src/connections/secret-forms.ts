/** The forms in which an answer may carry a secret: as it is, and in base64 at any position of a longer text. Pure. */

/** Shorter texts are not searched for: other text contains them by chance. */
const MIN_PLAIN = 6;
const MIN_BASE64 = 8;

/** A scheme before the secret, as in `Bearer …` and `Basic …`. */
const SCHEME = /^([A-Za-z][\w-]*) (.+)$/;

/** Schemes that are surely not a part of the secret. */
const KNOWN_SCHEMES = new Set(["", "bearer", "basic", "token", "apikey"]);

/** The texts that are secret in the value of a header. A word of the caller's before a blank may be a part of the secret. */
export function secretsIn(value: string): string[] {
  const [, scheme = "", secret = value] = SCHEME.exec(value) ?? [];
  if (!KNOWN_SCHEMES.has(scheme.toLowerCase())) return [secret, value];
  if (scheme.toLowerCase() !== "basic") return [secret];
  const pair = Buffer.from(secret, "base64").toString("latin1");
  const password = pair.slice(pair.indexOf(":") + 1);
  return [secret, pair, password];
}

/** Percent and JSON escapes are not among the forms: they are decoded before the search. */
export function formsOf(secret: string): Buffer[] {
  const bytes = Buffer.from(secret, "latin1");
  const encoded = [0, 1, 2].map((before) => base64Inside(bytes, before));
  const url = encoded.map((text) => text.replaceAll("+", "-").replaceAll("/", "_"));
  const plain = secret.length >= MIN_PLAIN ? [secret] : [];
  const texts = new Set([...plain, ...[...encoded, ...url].filter(({ length }) => length >= MIN_BASE64)]);
  return [...texts].map((text) => Buffer.from(text, "latin1"));
}

/**
 * The characters of base64 that depend on these bytes alone, when `before` other bytes (0 to 2) come first in their group
 * of three and any bytes follow.
 */
function base64Inside(bytes: Buffer, before: number): string {
  const text = Buffer.concat([Buffer.alloc(before), bytes]).toString("base64");
  const first = before === 0 ? 0 : before + 1;
  return text.slice(first, Math.floor(((before + bytes.length) * 8) / 6));
}
