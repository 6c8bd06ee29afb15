/** The part of a command that its audit entry keeps, by the session's `command_capture`. Pure. */
import { createHmac } from "node:crypto";
import { type CommandMeta, LIMITS } from "@vivarium/contract/api";
import { keyedDigest } from "../access/pepper.ts";

type Captured = Pick<CommandMeta, "hash" | "executable" | "command" | "truncated">;

const MASK = "[secret]";

export function captureCommand(
  mode: string,
  argv: readonly string[],
  { pepper, orgId, secrets }: { pepper: Buffer; orgId: string; secrets: readonly string[] },
): Captured {
  if (mode === "hash") return { hash: commandHash(pepper, orgId, argv) };
  if (mode === "full") return bounded(argv.map((word) => withoutSecrets(word, secrets)));
  return { executable: cut(withoutSecrets(argv[0] ?? "", secrets), LIMITS.auditCommandBytes) };
}

/**
 * Hash with a key of the organisation, so that hashes of different organisations cannot be compared. Testing guesses
 * needs the pepper.
 */
function commandHash(pepper: Buffer, orgId: string, argv: readonly string[]): string {
  const key = keyedDigest(pepper, "command-capture", orgId);
  return createHmac("sha256", key).update(JSON.stringify(argv)).digest("hex");
}

/** Masks secrets in a word, the longest first, because one secret may be part of another. */
function withoutSecrets(word: string, secrets: readonly string[]): string {
  const known = secrets.filter((secret) => secret !== "").sort((a, b) => b.length - a.length);
  return known.reduce((text, secret) => text.replaceAll(secret, MASK), word);
}

function bounded(words: string[]): Captured {
  const kept: string[] = [];
  let left: number = LIMITS.auditCommandBytes;
  for (const word of words) {
    const part = cut(word, left);
    kept.push(part);
    left -= Buffer.byteLength(part) + 1;
    if (part !== word || left <= 0) break;
  }
  const isWhole = kept.length === words.length && kept.at(-1) === words.at(-1);
  return { command: kept, ...(!isWhole && { truncated: true as const }) };
}

/** The first characters of a text that fit into `maxBytes`. */
function cut(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= maxBytes) return text;
  const whole = bytes.subarray(0, maxBytes).toString("utf8");
  return whole.replace(/\ufffd+$/, "");
}
