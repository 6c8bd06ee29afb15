/** Makes what a reboot must keep, and notes it for `after-reboot.ts`: a live session, a paused one and a checkpoint. */
import { writeFileSync } from "node:fs";
import { BEFORE_REBOOT, ownClient, shell, untilHealthy } from "./inside.ts";

const client = ownClient();
await untilHealthy(client);
const paused = await makeSession();
const { checkpoint_id } = await client.checkpoints.create(paused.session_id, { name: "before" });
await client.sessions.pause(paused.session_id);
const live = await makeSession();
writeFileSync(BEFORE_REBOOT, JSON.stringify({ sessions: [paused, live], checkpoint_id }));
console.log(
  `made ${paused.session_id}, which is paused, ${live.session_id}, which is live, and ${checkpoint_id}`,
);

async function makeSession() {
  const { session_id } = await client.sessions.create();
  const session = client.session(session_id);
  await shell(session, "head -c 1048576 /dev/urandom >/dev/shm/noise; echo kept >/workspace/kept");
  return { session_id, sum: await shell(session, "sha256sum /dev/shm/noise") };
}
