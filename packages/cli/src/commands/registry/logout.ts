/** `viv registry logout`: deletes credentials for registries. */
import { CliError } from "../../cli-error.ts";
import { doEach } from "../do-each.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function registryLogoutCommand(): Verb {
  return clientVerb("logout", ["viv registry logout ghcr.io"])
    .summary("delete credentials for registries")
    .description("Delete credentials for registries, with the keys that open them.")
    .argument("<name...>", "names of credentials (viv registry ls)")
    .option("--json", 'print {"results": [{name, ok, error?, code?}, …]}')
    .does(logOut);
}

async function logOut(call: Call, names: string[]): Promise<number> {
  const { registries } = await call.connect();
  const known = (await registries.list()).credentials.map(({ name }) => name);
  refuseUnknown(new Set(known), names);
  return doEach(call, { ids: new Set(names), key: "name" }, (name) => registries.delete(name));
}

/** Fails before anything is deleted: a misspelt name would leave its credential in use. */
function refuseUnknown(known: ReadonlySet<string>, names: string[]): void {
  const unknown = names.find((name) => !known.has(name));
  if (unknown === undefined) return;
  const hint = known.size === 0 ? "There is none." : `There are: ${[...known].join(", ")}.`;
  throw new CliError(`no credential is called ${JSON.stringify(unknown)}; nothing was deleted`, { hint });
}
