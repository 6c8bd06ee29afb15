/**
 * Loads the operator's key, which is a file beside the pepper and made on the first start. It opens the routes of the
 * whole installation, `/v1/admin/…`, and no session of any organisation.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { writeDurably } from "@vivarium/kit/durable-file";
import { hasCode } from "@vivarium/kit/unknown-error";
import { newOperatorKey } from "./api-key.ts";

/** The key's digest. */
export async function loadOperatorKey(controlDir: string): Promise<Buffer> {
  const file = path.join(controlDir, "operator.key");
  const known = await readFile(file, "utf8").catch((error: unknown) => {
    if (hasCode(error, "ENOENT")) return undefined;
    throw error;
  });
  const key = known?.trim() || newOperatorKey();
  if (!known?.trim()) await writeDurably(file, `${key}\n`, 0o600);
  return digestOfOperatorKey(key);
}

export function digestOfOperatorKey(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}
