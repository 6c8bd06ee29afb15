/** `viv fork`: makes new sessions from a session as it is now. */
import { parseCount } from "../args/values.ts";
import { noteTiming } from "../print/timing.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function forkCommand(): Verb {
  return sessionVerb("fork", [
    "viv fork 4x7k2m9q0a1b2c3d4e5f6",
    "for child in $(viv fork --count 4 4x7k2m9q0a1b2c3d4e5f6); do viv exec $child -- hostname; done",
  ])
    .summary("make new sessions from one as it is now")
    .description(
      `Make new sessions from the memory, processes and disk of one at this instant; it goes on as it was. Prints the ids
of the children, one a line. All of them are live then, or none exists.`,
    )
    .option("--count <n>", "how many children (default: 1)", parseCount)
    .option("--timing", "say how long each stage took")
    .option("--json", 'print {"parent_session_id", "children": [id, …]}')
    .does(forkSession);
}

async function forkSession(call: Call<{ count?: number }>, reference: string): Promise<void> {
  const { client, id } = await call.find(reference);
  const { count, timing } = call.options;
  const result = await client.sessions.fork(id, { count }, { timing });
  call.printLines(result, result.children);
  noteTiming(call, result);
}
