/** `viv checkpoint ls`: lists checkpoints, newest first. */
import { renderCheckpoints } from "../../print/checkpoint.ts";
import { findSession } from "../../sessions/find-session.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

export function checkpointLsCommand(): Verb {
  return clientVerb("ls", ["viv checkpoint ls", "viv checkpoint ls 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("list checkpoints")
    .description("List checkpoints, newest first, also those of sessions that have ended.")
    .argument("[session]", "only those of this session, by its id, name or the beginning of its id")
    .option("--json", 'print {"checkpoints": [checkpoint, …]}')
    .does(listCheckpoints);
}

async function listCheckpoints(call: Call, reference?: string): Promise<void> {
  const client = await call.connect();
  const sessionId =
    reference === undefined ? undefined : await findSession(client, reference, { orEnded: true });
  const checkpoints = await Array.fromAsync(client.checkpoints.all({ sessionId, pageSize: 200 }));
  call.print({ checkpoints }, () => renderCheckpoints(checkpoints, new Date(), call.paint));
}
