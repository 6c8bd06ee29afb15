/** `viv pause`: saves a session and stops its machine. */
import { parseInstant } from "../args/values.ts";
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function pauseCommand(): Verb {
  return sessionVerb("pause", [
    "viv pause 4x7k2m9q0a1b2c3d4e5f6",
    "viv pause --wake-at 8h 4x7k2m9q0a1b2c3d4e5f6",
    "viv pause --wake-at 2027-03-01T09:30:00Z 4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("save a session and stop its machine")
    .description(
      `Save a session with its memory and processes, and stop its machine. The next exec wakes it, as does viv resume.
Pausing a paused session replaces the time of its waking, or clears it.`,
    )
    .option(
      "--wake-at <time>",
      "wake it then: 30m, 12h, 7d from now, or an instant; at most 90 days ahead",
      parseInstant,
    )
    .option("--timing", "say how long each stage took")
    .option("--json", "print the record as JSON")
    .does(pauseSession);
}

async function pauseSession(call: Call<{ wakeAt?: Date }>, reference: string): Promise<void> {
  const { client, id } = await call.find(reference);
  const { wakeAt, timing } = call.options;
  call.printSession(await client.sessions.pause(id, { wakeAt }, { timing }));
}
