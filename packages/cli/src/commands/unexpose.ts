/** `viv unexpose`: closes an exposed port of a session. */
import { parsePort } from "../args/values.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function unexposeCommand(): Verb {
  return sessionVerb("unexpose", ["viv unexpose 4x7k2m9q0a1b2c3d4e5f6 8000"])
    .summary("close an exposed port of a session")
    .description(
      `Close an exposed port: its URL, its tokens and open connections are dead when this returns. One that is not exposed
is fine. Wakes nothing. Prints the port.`,
    )
    .argument("<port>", "the exposed port", parsePort)
    .option("--json", 'print {"ok": whether it was exposed}')
    .does(unexposePort);
}

async function unexposePort(call: Call, reference: string, port: number): Promise<void> {
  const { session } = await call.find(reference);
  const ok = await session.unexpose(port);
  call.print({ ok }, () => String(port));
  if (!ok && !call.options.json) call.terminal.note(`viv: port ${port} was not exposed`);
}
