/** `viv key ls`: lists API keys. */
import { renderKeys } from "../../print/key.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function keyLsCommand(): Verb {
  return clientVerb("ls", ["viv key ls"])
    .summary("list API keys")
    .description(
      "List the API keys that are not revoked, newest first: what each may do, and when it was used.",
    )
    .option("--json", 'print {"api_keys": [key, …]}')
    .does(listKeys);
}

async function listKeys(call: Call): Promise<void> {
  const client = await call.connect();
  const [keys, { projects }] = [await client.keys.list(), await client.projects.list()];
  call.print(keys, ({ api_keys }) => renderKeys(api_keys, projects, new Date()));
}
