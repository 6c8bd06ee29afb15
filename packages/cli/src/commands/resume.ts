/** `viv resume`: wakes a paused session. */
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function resumeCommand(): Verb {
  return sessionVerb("resume", [
    "viv resume 4x7k2m9q0a1b2c3d4e5f6",
    "viv resume --timing 4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("wake a paused session")
    .description("Wake a paused session; returns when it is live. An exec does that by itself.")
    .option("--timing", "say how long each stage took")
    .option("--json", "print the record as JSON")
    .does(resumeSession);
}

async function resumeSession(call: Call, reference: string): Promise<void> {
  const { client, id } = await call.find(reference);
  call.printSession(await client.sessions.resume(id, { timing: call.options.timing }));
}
