/** `viv volume ls`: lists volumes. */
import { renderVolumes } from "../../print/volume.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function volumeLsCommand(): Verb {
  return clientVerb("ls", ["viv volume ls"])
    .summary("list volumes")
    .description("List the organisation's volumes, newest first, each with the session that has it.")
    .option("--json", 'print {"volumes": [volume, …]}')
    .does(listVolumes);
}

async function listVolumes(call: Call): Promise<void> {
  const list = await (await call.connect()).volumes.list();
  call.print(list, ({ volumes }) => renderVolumes(volumes, new Date()));
}
