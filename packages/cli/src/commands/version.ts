/** `viv version`: the version of this viv, and of every part of the service that runs. */
import { renderVersions } from "../print/versions.ts";
import { readVersions } from "../service/versions.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

export function versionCommand(): Verb {
  return clientVerb("version", ["viv version", "sudo viv version --json"])
    .summary("what runs where")
    .description(
      `Print the version of this viv, and of what runs: each process of the service of this host with its start, the
database's schema, QEMU, the guest kernel and the templates. As root it also asks the node.`,
    )
    .option("--json", "print {viv, service?, data_dir?, unit?, parts?, schema, agent_generation, qemu?, …}")
    .does(version);
}

async function version(call: Call): Promise<void> {
  const versions = await readVersions(call.config);
  call.print(versions, () => renderVersions(versions));
}
