/** `viv checkpoint rm`: deletes checkpoints. */
import { doEach } from "../do-each.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function checkpointRmCommand(): Verb {
  return clientVerb("rm", ["viv checkpoint rm chk_4x7k2m9q0a1b2c3d4e5f6"])
    .summary("delete checkpoints")
    .description("Delete checkpoints. Sessions that were started from them go on.")
    .argument("<checkpoint...>", "ids of the checkpoints")
    .option("--json", 'print {"results": [{checkpoint_id, ok, error?, code?}, …]}')
    .does(removeCheckpoints);
}

async function removeCheckpoints(call: Call, ids: string[]): Promise<number> {
  const { checkpoints } = await call.connect();
  return doEach(call, { ids, key: "checkpoint_id" }, (id) => checkpoints.delete(id));
}
