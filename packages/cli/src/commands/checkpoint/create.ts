/** `viv checkpoint create`: saves a session as it is now. */
import { collectPair } from "../../args/values.ts";
import { renderCheckpoint } from "../../print/checkpoint.ts";
import { noteTiming } from "../../print/timing.ts";
import { type Call, sessionVerb, type Verb } from "../verb.ts";

interface CheckpointCreateOptions {
  name?: string;
  label?: Record<string, string>;
}

export function checkpointCreateCommand(): Verb {
  return sessionVerb("create", [
    "viv checkpoint create 4x7k2m9q0a1b2c3d4e5f6",
    "viv checkpoint create --name before-upgrade 4x7k2m9q0a1b2c3d4e5f6",
  ])
    .summary("save a session as it is now")
    .description(
      `Save a session as it is now: memory, processes and disk. A live session runs on, a paused one stays paused.
The checkpoint outlives its session, until it is deleted. Prints its id.`,
    )
    .option("--name <name>", "a name, unique among the session's checkpoints: a-z, 0-9 and hyphens")
    .option("--label <key=value>", "label; repeatable", collectPair)
    .option("--timing", "say how long each stage took")
    .option("--json", "print the checkpoint as JSON")
    .does(createCheckpoint);
}

async function createCheckpoint(call: Call<CheckpointCreateOptions>, reference: string): Promise<void> {
  const { client, id } = await call.find(reference);
  const { name, label, timing } = call.options;
  const checkpoint = await client.checkpoints.create(id, { name, labels: label }, { timing });
  call.print(checkpoint, renderCheckpoint, ({ checkpoint_id }) => checkpoint_id);
  noteTiming(call, checkpoint);
}
