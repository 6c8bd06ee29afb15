/**
 * State keys, with which nodes seal the memory and the disk of sessions that may hold secrets (docs/design/sealed-state.md).
 * What is saved or started from such a session has the same key, sealed with its own data key.
 */
import { randomBytes } from "node:crypto";
import { newDataKey, type Owner, openDataKey, openFor, sealFor, type WrappedKey } from "./data-key.ts";
import type { Keyring } from "./keyring.ts";

const KEY_BYTES = 32;
const PLACE = "state_key";

/** The columns of a session, checkpoint or template that its state key is read from. */
export interface StateKeyColumns extends Owner {
  kek_id: string | null;
  data_key: Buffer | null;
  state_key: Buffer | null;
}

export const sealStateKey = (dataKey: Buffer, owner: Owner, stateKey: Buffer): Buffer =>
  sealFor(dataKey, owner, PLACE, stateKey);

/** Undefined: nothing of this session, checkpoint or template is sealed. */
export async function openStateKey(keyring: Keyring, row: StateKeyColumns): Promise<Buffer | undefined> {
  const { kek_id, data_key, state_key } = row;
  if (kek_id === null || data_key === null || state_key === null) return undefined;
  return openFor(await openDataKey(keyring, { ...row, kek_id, data_key }), row, PLACE, state_key);
}

/** The columns of a row that keeps nothing sealed but a state key. The key was opened, so there is a key-encryption key. */
export function stateKeyColumns(
  keyring: Keyring,
  owner: Owner,
  stateKey: Buffer,
): WrappedKey & { state_key: Buffer } {
  if (!keyring.current) throw new Error("a state key was opened without a key-encryption key");
  const { key, wrapped } = newDataKey(keyring.current, owner);
  return { ...wrapped, state_key: sealStateKey(key, owner, stateKey) };
}

/**
 * The key of a new session that may hold secrets: that of its origin, or a new one. Undefined without a key-encryption key, which
 * only an origin of an earlier version can do without.
 */
export function stateKeyOfNew(keyring: Keyring, ofOrigin: Buffer | undefined): Buffer | undefined {
  return ofOrigin ?? (keyring.current && randomBytes(KEY_BYTES));
}
