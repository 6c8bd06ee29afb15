/** `viv ps`: lists the named processes of a session. */
import { renderProcesses } from "../print/process.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function psCommand(): Verb {
  return sessionVerb("ps", ["viv ps 4x7k2m9q0a1b2c3d4e5f6", "viv ps --json 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("list the named processes of a session")
    .description("List the named processes of a session, those that have exited too, oldest first.")
    .option("--json", 'print {"processes": [process, …]}')
    .does(listProcesses);
}

async function listProcesses(call: Call, reference: string): Promise<void> {
  const { processes } = await (await call.find(reference)).session.processes.list();
  call.print({ processes }, () => renderProcesses(processes, new Date(), call.paint));
}
