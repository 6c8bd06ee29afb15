/** Checks that what `before-reboot.ts` made is still there. The session that was live is paused now. */
import { readFileSync } from "node:fs";
import { BEFORE_REBOOT, expectEqual, ownClient, shell, untilHealthy } from "./inside.ts";

interface Note {
  sessions: { session_id: string; sum: string }[];
  checkpoint_id: string;
}

const { sessions, checkpoint_id } = JSON.parse(readFileSync(BEFORE_REBOOT, "utf8")) as Note;
const client = ownClient();
await untilHealthy(client);
for (const { session_id, sum } of sessions) {
  expectEqual((await client.sessions.get(session_id)).state, "paused", "the state after the reboot");
  const session = client.session(session_id);
  expectEqual(await shell(session, "sha256sum /dev/shm/noise"), sum, "the memory after the reboot");
  expectEqual(await shell(session, "cat /workspace/kept"), "kept\n", "the file after the reboot");
}
const started = await client.checkpoints.start(checkpoint_id);
await client.sessions.waitUntilLive(started.session_id);
const inCheckpoint = await shell(client.session(started.session_id), "sha256sum /dev/shm/noise");
expectEqual(inCheckpoint, sessions[0]?.sum, "the checkpoint's memory");
for (const id of [...sessions.map((one) => one.session_id), started.session_id])
  await client.sessions.delete(id);
await client.checkpoints.delete(checkpoint_id);
console.log("both sessions woke, and the checkpoint started, with their memory");
