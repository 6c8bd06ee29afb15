/** `viv registry ls`: lists credentials for registries. */
import { renderCredentials } from "../../print/registry.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function registryLsCommand(): Verb {
  return clientVerb("ls", ["viv registry ls"])
    .summary("list credentials for registries")
    .description(
      "List the credentials for registries, newest first, each with the last characters of its secret.",
    )
    .option("--json", 'print {"credentials": [credential, …]}')
    .does(listCredentials);
}

async function listCredentials(call: Call): Promise<void> {
  const list = await (await call.connect()).registries.list();
  call.print(list, ({ credentials }) => renderCredentials(credentials, new Date()));
}
