/** `viv restore`: takes a session back to a checkpoint. */
import { type Call, sessionVerb, type Verb } from "./verb.ts";

export function restoreCommand(): Verb {
  return sessionVerb("restore", [
    "viv restore 4x7k2m9q0a1b2c3d4e5f6 before-upgrade",
    "viv restore 4x7k2m9q0a1b2c3d4e5f6 chk_4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("take a session back to a checkpoint")
    .description(
      `Take a session back to one of its checkpoints, or to the one that it was started from: memory, processes and
disk become what they were. What happened since is lost, unless a checkpoint has it. Id and settings stay.`,
    )
    .argument("<checkpoint>", "id or name of the checkpoint (viv checkpoint ls SESSION)")
    .option("--timing", "say how long each stage took")
    .option("--json", "print the record as JSON")
    .does(restoreSession);
}

async function restoreSession(call: Call, reference: string, checkpoint: string): Promise<void> {
  const { client, id } = await call.find(reference);
  const { timing } = call.options;
  call.printSession(await client.sessions.restore(id, checkpoint, { timing }));
}
