/** `viv kill`: ends named processes of a session. */
import { doEach } from "./do-each.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function killCommand(): Verb {
  return sessionVerb("kill", ["viv kill 4x7k2m9q0a1b2c3d4e5f6 web", "viv kill 4x7k2m9q0a1b2c3d4e5f6 a b"])
    .summary("end named processes of a session")
    .description(
      "End named processes with SIGTERM, after 5 s with SIGKILL, and wait for it. What has exited stays as it is.",
    )
    .argument("<name...>", "names of processes")
    .option("--json", 'print {"results": [{name, ok, error?, code?}, …]}')
    .does(killProcesses);
}

async function killProcesses(call: Call, reference: string, names: string[]): Promise<number> {
  const { processes } = (await call.find(reference)).session;
  return doEach(call, { ids: names, key: "name" }, (name) => processes.kill(name));
}
