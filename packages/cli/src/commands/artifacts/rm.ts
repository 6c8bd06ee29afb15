/** `viv artifacts rm`: deletes artifacts with their files. */
import { doEach } from "../do-each.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function artifactsRmCommand(): Verb {
  return clientVerb("rm", ["viv artifacts rm art_4x7k2m9q0a1b2c3d4e5f6"])
    .summary("delete artifacts")
    .description("Delete artifacts with their files.")
    .argument("<artifact...>", "ids of the artifacts")
    .option("--json", 'print {"results": [{id, ok, error?, code?}, …]}')
    .does(removeArtifacts);
}

async function removeArtifacts(call: Call, ids: string[]): Promise<number> {
  const { artifacts } = await call.connect();
  return doEach(call, { ids, key: "id" }, (id) => artifacts.delete(id));
}
