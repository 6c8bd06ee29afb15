/** Turns a credential's row into its public record, which has no secret. */
import type { RegistryCredential } from "@vivarium/contract/api";
import type { Log } from "@vivarium/kit/log";
import type { Keyring } from "../secrets/keyring.ts";
import { openSecret } from "./seal.ts";
import type { CredentialRow } from "./store.ts";

/** Shorter secrets would be known to a large part by their end. */
const SHOWN_FROM_CHARS = 12;

export function toCredential(row: CredentialRow, secret: string | undefined): RegistryCredential {
  const last4 = secret === undefined ? undefined : lastFour(secret);
  const createdAt = row.created_at.toISOString();
  return {
    id: row.id,
    name: row.name,
    registry_host: row.registry_host,
    username: row.username,
    ...(last4 !== undefined && { secret_last4: last4 }),
    ...(row.project_id !== null && { project_id: row.project_id }),
    created_at: createdAt,
    // A credential is not changed, only replaced by another one.
    updated_at: createdAt,
  };
}

/** A credential that cannot be opened is listed without the end of its secret, so that it can still be found and deleted. */
export async function showCredential(
  { keyring, log }: { keyring: Keyring; log: Log },
  row: CredentialRow,
): Promise<RegistryCredential> {
  const secret = await openSecret(keyring, row).catch((err: unknown) => {
    log.error({ err, credential_id: row.id }, "the credential of a registry cannot be opened");
    return undefined;
  });
  return toCredential(row, secret);
}

/** Undefined of a short secret, and of an end that is no text to look at, like that of a key in a JSON file. */
function lastFour(secret: string): string | undefined {
  const end = secret.slice(-4);
  return [...secret].length >= SHOWN_FROM_CHARS && /^[\x21-\x7e]{4}$/.test(end) ? end : undefined;
}
