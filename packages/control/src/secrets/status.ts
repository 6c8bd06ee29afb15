/** Says which key-encryption keys are loaded, and how much each still wraps. */
import type { KekStatus } from "@vivarium/contract/api";
import type { Database } from "../db/pool.ts";
import type { Keyring } from "./keyring.ts";
import { countDataKeys, countUnsealed } from "./store.ts";

export async function kekStatus({ db, keyring }: { db: Database; keyring: Keyring }): Promise<KekStatus> {
  const counts = await countDataKeys(db);
  const ids = [...new Set([...keyring.ids, ...counts.keys()])].sort(byNumber);
  return {
    ...(keyring.current && { current: keyring.current.id }),
    keys: ids.map((id) => ({
      id,
      is_loaded: keyring.ids.includes(id),
      data_keys: counts.get(id) ?? 0,
    })),
    unsealed: await countUnsealed(db),
  };
}

const numberOf = (id: string) => Number(id.slice("kek_".length));
const byNumber = (a: string, b: string) => numberOf(a) - numberOf(b);
