/** `viv volume rm`: deletes volumes. */
import { doEach } from "../do-each.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function volumeRmCommand(): Verb {
  return clientVerb("rm", ["viv volume rm vol_4x7k2m9q0a1b2c3d4e5f6"])
    .summary("delete volumes")
    .description("Delete volumes and what is on them. A volume that a session has is not deleted.")
    .argument("<volume...>", "ids of volumes")
    .option("--json", 'print {"results": [{id, ok, error?, code?}, …]}')
    .does(removeVolumes);
}

async function removeVolumes(call: Call, ids: string[]): Promise<number> {
  const { volumes } = await call.connect();
  return doEach(call, { ids, key: "id" }, (id) => volumes.delete(id));
}
