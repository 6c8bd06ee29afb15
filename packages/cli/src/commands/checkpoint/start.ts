/** `viv checkpoint start`: starts a new session from a checkpoint. */
import { addSessionOptions, type SessionOptions, toSessionFields } from "../../args/session-options.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function checkpointStartCommand(): Verb {
  const command = clientVerb("start", [
    "viv checkpoint start chk_4x7k2m9q0a1b2c3d4e5f6",
    "id=$(viv checkpoint start --name second-try chk_4x7k2m9q0a1b2c3d4e5f6) && viv exec $id -- ls",
  ])
    .summary("start a session from a checkpoint")
    .description(`Start a session of its own from a checkpoint. It is live when this returns. Prints its id.`)
    .argument("<checkpoint>", "id of the checkpoint");
  return addSessionOptions(command)
    .option("--timing", "say how long each stage took")
    .option("--json", "print the record as JSON")
    .does(startCheckpoint);
}

async function startCheckpoint(call: Call<SessionOptions>, id: string): Promise<void> {
  const { checkpoints } = await call.connect();
  const { timing } = call.options;
  call.printSession(
    await checkpoints.start(id, await toSessionFields(call.options, call.config), { timing }),
  );
}
