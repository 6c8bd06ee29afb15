/**
 * After a power cut: the service answers by itself, no row is stuck, and what was acknowledged is there with its memory:
 * `after-cut.ts '["checkpoint ID SUM", "paused ID SUM"]'`. The newest of each kind are woken.
 */
import { uptime } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { expectEqual, ownClient, shell, untilHealthy } from "./inside.ts";

/** When the host booted, in milliseconds since 1970: no machine has outlived the cut, so a session that is live is so since then. */
const BOOTED_MS = Date.now() - uptime() * 1000;
const SETTLES_WITHIN_MS = 300_000;
/** How many of each kind are woken, newest first: each takes a while here. */
const WOKEN = 2;

const client = ownClient();
await untilHealthy(client);
await untilSettled();
const kept = (JSON.parse(process.argv[2] ?? "[]") as string[]).map(
  (line) => line.split(" ") as [string, string, string],
);
const present = new Map(
  (await client.sessions.list({ limit: 100 })).sessions.map((one) => [one.session_id, one.state]),
);
const checkpoints = new Set<string>();
for await (const { checkpoint_id } of client.checkpoints.all()) checkpoints.add(checkpoint_id);
const lost = kept.filter(([kind, id]) =>
  kind === "paused" ? present.get(id) !== "paused" : !checkpoints.has(id),
);
expectEqual(lost, [], "what was acknowledged and is gone");
for (const kind of ["paused", "checkpoint"])
  for (const [, id, sum] of kept.filter(([one]) => one === kind).slice(-WOKEN))
    await checkMemory(kind, id, sum);
console.log(`${kept.length} saved states are there; the newest were woken with their memory`);

/** Waits until the service has found out which sessions lost their machine. */
async function untilSettled(): Promise<void> {
  const deadline = Date.now() + SETTLES_WITHIN_MS;
  for (;;) {
    const { sessions } = await client.sessions.list({ limit: 100 });
    const stuck = sessions.filter(isStuck);
    if (stuck.length === 0) return;
    if (Date.now() > deadline) throw new Error(`stuck: ${JSON.stringify(stuck)}`);
    await sleep(1_000);
  }
}

/** A session that was being created at the cut gets another machine, and is live with it. */
function isStuck({ state, active_since: since = "" }: { state: string; active_since?: string }): boolean {
  return state === "creating" || (state === "live" && Date.parse(since) < BOOTED_MS);
}

async function checkMemory(kind: string, id: string, sum: string): Promise<void> {
  const session_id = kind === "paused" ? id : (await client.checkpoints.start(id)).session_id;
  const found = await shell(client.session(session_id), "sha256sum </dev/shm/noise | cut -c1-64");
  expectEqual(found.trim(), sum, `the memory of ${kind} ${id}`);
  if (kind === "paused") await client.sessions.pause(session_id);
  else await client.sessions.delete(session_id);
}
