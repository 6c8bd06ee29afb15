/** Seals the secret of a credential with a data key of its row, for the registry and the user name of that row. */
import {
  newDataKey,
  type Owner,
  openDataKey,
  openFor,
  sealFor,
  type WrappedKey,
} from "../secrets/data-key.ts";
import type { Keyring } from "../secrets/keyring.ts";
import { noKey } from "../secrets/variables.ts";

interface Holder extends Owner {
  registry_host: string;
  username: string;
}

export interface SealedSecret extends WrappedKey {
  sealed: Buffer;
}

/** A row that somebody changed to another registry does not open, so its secret is not sent there. No host has a `|`. */
const placeOf = ({ registry_host: host, username }: Holder) => `registry|${host}|${username}`;

/** Throws the error that the caller gets if there is no key-encryption key. */
export function sealSecret(keyring: Keyring, holder: Holder, secret: string): SealedSecret {
  if (!keyring.current) throw noKey("secret");
  const { key, wrapped } = newDataKey(keyring.current, holder);
  return { ...wrapped, sealed: sealFor(key, holder, placeOf(holder), Buffer.from(secret)) };
}

export async function openSecret(keyring: Keyring, row: Holder & SealedSecret): Promise<string> {
  const key = await openDataKey(keyring, row);
  return openFor(key, row, placeOf(row), row.sealed).toString();
}
