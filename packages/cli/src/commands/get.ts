/** `viv get`: shows one session. */
import { renderSession } from "../print/session.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function getCommand(): Verb {
  return sessionVerb("get", ["viv get 4x7k2m9q0a1b2c3d4e5f6", "viv get 4x7k2m9q0a1b2c3d4e5f6 --json"])
    .summary("show a session")
    .description("Show one session as it is now.")
    .option("--json", "print the record as JSON")
    .does(getSession);
}

async function getSession(call: Call, reference: string): Promise<void> {
  const { client, id } = await call.find(reference);
  call.print(await client.sessions.get(id), (record) => renderSession(record, call.paint));
}
