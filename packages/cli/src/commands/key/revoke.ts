/** `viv key revoke`: revokes API keys. */
import { doEach } from "../do-each.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function keyRevokeCommand(): Verb {
  return clientVerb("revoke", ["viv key revoke key_4x7k2m9q0a1b2c3d4e5f6"])
    .summary("revoke API keys")
    .description(
      "Revoke API keys. They are refused from now on, and what they have open ends within seconds.",
    )
    .argument("<id...>", "ids of the keys (viv key ls)")
    .option("--json", 'print {"results": [{id, ok, error?, code?}, …]}')
    .does(revokeKeys);
}

async function revokeKeys(call: Call, ids: string[]): Promise<number> {
  const { keys } = await call.connect();
  return doEach(call, { ids, key: "id" }, (id) => keys.revoke(id));
}
