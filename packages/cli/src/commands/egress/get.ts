/** `viv egress get`: shows the egress policy of a session. */
import { renderPolicy } from "../../print/egress.ts";
import { type Call, sessionVerb, type Verb } from "../verb.ts";

export function egressGetCommand(): Verb {
  return sessionVerb("get", ["viv egress get 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("show what a session may reach")
    .description("Show the egress policy of a session: its mode, and one line for each entry.")
    .option("--json", 'print {"session_id", "mode", "allow": [entry, …]}')
    .does(getPolicy);
}

async function getPolicy(call: Call, reference: string): Promise<void> {
  const { egress } = (await call.find(reference)).session;
  call.print(await egress.get(), renderPolicy);
}
