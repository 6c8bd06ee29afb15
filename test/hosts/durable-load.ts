/**
 * Makes saved state until it is stopped, and prints each as `kept KIND ID SUM` once the service has acknowledged it:
 * paused sessions and checkpoints, with the SHA-256 of a file in their memory.
 */
import { ownClient, shell } from "./inside.ts";

const AT_ONCE = 2;
const client = ownClient();
await Promise.all(Array.from({ length: AT_ONCE }, makeForEver));

async function makeForEver(): Promise<never> {
  for (;;) {
    const { session_id } = await client.sessions.create();
    await client.sessions.waitUntilLive(session_id);
    const session = client.session(session_id);
    const noise = "head -c 65536 /dev/urandom >/dev/shm/noise; sha256sum </dev/shm/noise | cut -c1-64";
    const sum = (await shell(session, noise)).trim();
    const { checkpoint_id } = await client.checkpoints.create(session_id);
    console.log(`kept checkpoint ${checkpoint_id} ${sum}`);
    await client.sessions.pause(session_id);
    console.log(`kept paused ${session_id} ${sum}`);
  }
}
