/** `viv template rm`: deletes templates of the organisation. */
import { doEach } from "../do-each.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function templateRmCommand(): Verb {
  return clientVerb("rm", ["viv template rm with-tools", "viv template rm with-tools@1"])
    .summary("delete templates of your own")
    .description(
      "Delete templates of your own, or single versions. Sessions and checkpoints made from them go on.",
    )
    .argument("<template...>", "NAME, or NAME@VERSION for one version")
    .option("--json", 'print {"results": [{name, ok, error?, code?}, …]}')
    .does(removeTemplates);
}

async function removeTemplates(call: Call, names: string[]): Promise<number> {
  const { templates } = await call.connect();
  return doEach(call, { ids: names, key: "name" }, (name) => templates.delete(name));
}
