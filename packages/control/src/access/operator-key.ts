/**
 * Loads the operator's key, which is a file beside the pepper and made on the first start. It opens the routes of the
 * whole installation, `/v1/admin/…`, and no session of any organisation.
 */
import { createHash } from "node:crypto";
import path from "node:path";
import { API_KEY_PATTERN } from "@vivarium/contract/api";
import { isOperatorKey, newOperatorKey } from "./api-key.ts";
import { readOrMake } from "./make-once.ts";

/** The key's digest. */
export async function loadOperatorKey(controlDir: string): Promise<Buffer> {
  const file = path.join(controlDir, "operator.key");
  const text = await readOrMake(file, () => `${newOperatorKey()}\n`);
  const key = text.toString().trim();
  if (key === "") throw new Error(`${file} is empty: delete it, and the next start makes another key`);
  // No request could be accepted with it.
  if (!isOperatorKey(key) || !API_KEY_PATTERN.test(key))
    throw new Error(
      `${file} does not contain an operator's key: put it back from a backup, or delete it, and the next start makes another key`,
    );
  return digestOfOperatorKey(key);
}

export function digestOfOperatorKey(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}
