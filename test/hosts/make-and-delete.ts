/**
 * Makes and deletes sessions, some at once, and counts from outside what they leave on the host:
 * `make-and-delete.ts --sessions 200 --at-once 20`.
 */
import { existsSync, readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { machineTraces } from "../support/machine-traces.ts";
import { DATA_DIR, expectEqual, ownClient, shell } from "./inside.ts";

const { values } = parseArgs({
  options: { sessions: { type: "string", default: "200" }, "at-once": { type: "string", default: "20" } },
});
const wanted = Number(values.sessions);
const atOnce = Number(values["at-once"]);
const QUIET_MS = 120_000;

const client = ownClient();
const before = await whenQuiet();
for (let done = 0; done < wanted; done += atOnce) {
  await Promise.all(Array.from({ length: Math.min(atOnce, wanted - done) }, liveAndDie));
  console.log(`${Math.min(done + atOnce, wanted)} of ${wanted} made and deleted`);
}
const after = await whenQuiet();
console.log(JSON.stringify({ before, after }));
expectEqual(after, before, "what is on this host after the last delete");

async function liveAndDie(): Promise<void> {
  const { session_id } = await client.sessions.create();
  await client.sessions.waitUntilLive(session_id);
  expectEqual(
    (await shell(client.session(session_id), "echo alive")).trim(),
    "alive",
    "the session's answer",
  );
  await client.sessions.delete(session_id);
}

/** The traces once they have not changed for a while: the service prepares machines and namespaces ahead. */
async function whenQuiet() {
  const deadline = Date.now() + QUIET_MS * 5;
  let last = traces();
  for (let since = Date.now(); Date.now() - since < QUIET_MS / 4; ) {
    if (Date.now() > deadline) throw new Error(`this host does not come to rest: ${JSON.stringify(last)}`);
    await sleep(1_000);
    const now = traces();
    if (JSON.stringify(now) !== JSON.stringify(last)) since = Date.now();
    last = now;
  }
  return last;
}

/** Numbers only: which slots and folders they are changes with every machine. */
function traces() {
  const { folders, ...counts } = machineTraces(DATA_DIR);
  return { ...counts, folders: folders.length, groups: machineGroups().length };
}

function machineGroups(at = "/sys/fs/cgroup"): string[] {
  if (!existsSync(at)) return [];
  return readdirSync(at, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .flatMap(({ name }) => (/^slot-\d+$/.test(name) ? [name] : machineGroups(`${at}/${name}`)));
}
