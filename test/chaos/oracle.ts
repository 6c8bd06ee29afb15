/** Invariants once the load rests: nothing acknowledged is lost, nothing exists twice, nothing is left over. */
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { MachineList, SnapshotList } from "@vivarium/contract/node";
import { query } from "../support/database.ts";
import { eventually } from "../support/eventually.ts";
import { AHEAD, type MachineTraces, machineTraces } from "../support/machine-traces.ts";
import { nodeCaller } from "../support/node-caller.ts";
import type { ServiceFacts } from "../support/service.ts";
import type { Api, Reply } from "./api.ts";
import type { Kept, Known, Load } from "./load.ts";

const QUIET_WITHIN_MS = 10_000;
/** Remains of a dead process may be there at the first look: another process deletes them after its second look. */
const CLEARED_WITHIN_MS = 30_000;

/** Returns one line about what it saw; throws at the first finding. */
export async function verify(facts: ServiceFacts, api: Api, load: Load): Promise<string> {
  await eventually(() => checkStates(api, load), QUIET_WITHIN_MS);
  await removeUnacknowledged(api, load);
  let marks = 0;
  for (const known of load.sessions.values())
    if (known.state === "there") marks += await checkContent(api, known, load.earlier);
  const kept = await checkKept(api, load);
  const removed = await checkRemoved(api, load);
  await eventually(() => checkSnapshots(facts), CLEARED_WITHIN_MS);
  await eventually(() => checkHost(facts, api), QUIET_WITHIN_MS);
  const there = [...load.sessions.values()].filter(({ state }) => state === "there").length;
  return `${load.sessions.size} sessions made, ${there} there, ${marks} marks read back, ${kept} checkpoints and templates kept, ${removed} removed, host clean`;
}

async function checkStates(api: Api, load: Load): Promise<void> {
  for (const known of load.sessions.values()) {
    const { status, body } = await api.call("GET", `/v1/sessions/${known.id}`);
    if (known.state === "unknown" && (status === 200 || status === 404)) {
      if (status === 200) await api.call("DELETE", `/v1/sessions/${known.id}`);
      known.state = "gone";
      continue;
    }
    if (known.state === "gone" && status !== 404)
      throw new Error(`${known.id} was destroyed and answers ${status}`);
    if (known.state !== "there") continue;
    if (status !== 200) throw new Error(`${known.id} was acknowledged and answers ${status}`);
    if (body.state !== "live" && body.state !== "paused")
      throw new Error(`${known.id} is ${body.state} (${body.status_reason ?? body.status_detail ?? ""})`);
  }
}

/** Requests whose answer was lost with the connection: their effects may exist or not. */
async function removeUnacknowledged(api: Api, load: Load): Promise<void> {
  const { body } = await api.call("GET", "/v1/sessions?limit=500");
  for (const { session_id } of body.sessions)
    if (!load.sessions.has(session_id)) await api.call("DELETE", `/v1/sessions/${session_id}`);
}

async function checkContent(api: Api, known: Known, earlier: Load["earlier"]): Promise<number> {
  const read = "cat /workspace/marks 2>/dev/null; echo --; cat /workspace/counter 2>/dev/null";
  const body = await eventually(async () => {
    const answer = await api.sh(known.id, read);
    if (answer.status !== 200)
      throw new Error(`${known.id} cannot be read: ${answer.status} ${JSON.stringify(answer.body)}`);
    return answer.body;
  }, QUIET_WITHIN_MS);
  const [marks = "", counter = ""] = (body.stdout as string).split("--\n");
  checkMarks(known, numbers(marks), earlier);
  checkCounter(known, numbers(counter));
  return known.marks.length;
}

function checkMarks(known: Known, found: number[], earlier: Load["earlier"]): void {
  if (new Set(found).size !== found.length) throw new Error(`${known.id} holds a mark twice: ${found}`);
  // Marks that were sent at the same time may appear in either order.
  if (found.some((mark, i) => found.slice(i + 1).some((later) => earlier.get(mark)?.has(later))))
    throw new Error(`${known.id} holds acknowledged marks out of order: ${found}`);
  if (!known.isRewound) {
    const lost = known.marks.filter((mark) => !found.includes(mark));
    if (lost.length > 0) throw new Error(`${known.id} lost acknowledged marks ${lost}; it holds ${found}`);
    const alien = found.filter((mark) => !known.marks.includes(mark) && !known.maybe.has(mark));
    if (alien.length > 0) throw new Error(`${known.id} holds marks that it should not: ${alien}`);
  }
  // From here on, the marks read are certain. A command that was frozen with its session may still write later.
  known.marks = found.toSorted((a, b) => a - b);
  for (const mark of found) known.maybe.delete(mark);
  known.isRewound = false;
}

/** A process that counts in memory and writes its count: no gap and no repeat, in any order of loads. */
function checkCounter(known: Known, found: number[]): void {
  const wrong = found.findIndex((value, i) => value !== i + 1);
  if (wrong >= 0)
    throw new Error(`${known.id}: counter has ${found[wrong]} at ${wrong + 1} of ${found.length}`);
  if (known.hasCounter && found.length === 0) throw new Error(`${known.id}: the counter's file is empty`);
}

/** Every acknowledged checkpoint and template exists, and a start from the newest of each matches its record. */
async function checkKept(api: Api, load: Load): Promise<number> {
  const checkpoints = [...load.sessions.values()].flatMap((known) => known.checkpoints);
  const paths = [
    ...checkpoints.map(({ id }) => `/v1/checkpoints/${id}`),
    ...load.templates.map(({ id }) => `/v1/templates/${id}`),
  ];
  for (const path of paths) {
    const { status } = await api.call("GET", path);
    if (status !== 200) throw new Error(`${path} was acknowledged and answers ${status}`);
  }
  const [checkpoint, template] = [checkpoints.at(-1), load.templates.at(-1)];
  if (checkpoint)
    await checkStart(api, checkpoint, () =>
      api.call("POST", `/v1/checkpoints/${checkpoint.id}/sessions`, {}),
    );
  if (template)
    await checkStart(api, template, () => api.call("POST", "/v1/sessions", { template: template.id }));
  return paths.length;
}

/** Deleted things stay deleted. Deletions without an answer may have failed: then they are deleted now. */
async function checkRemoved(api: Api, load: Load): Promise<number> {
  for (const removed of load.removed) {
    const { status } = await api.call("GET", removed.path);
    if (status !== 404 && (removed.isCertain || status !== 200))
      throw new Error(`${removed.path} was deleted and answers ${status}`);
    if (status === 200) await api.call("DELETE", removed.path);
    removed.isCertain = true;
  }
  return load.removed.length;
}

async function checkStart(api: Api, { id, marks, maybe }: Kept, start: () => Promise<Reply>): Promise<void> {
  const { status, body } = await start();
  if (status !== 200) throw new Error(`${id} does not start: ${status} ${JSON.stringify(body)}`);
  const read = await api.sh(body.session_id, "cat /workspace/marks 2>/dev/null");
  await api.call("DELETE", `/v1/sessions/${body.session_id}`);
  if (read.status !== 200) throw new Error(`what ${id} was started as cannot be read: ${read.status}`);
  const found = numbers(read.body.stdout);
  const wrong = found.filter((mark) => !marks.includes(mark) && !maybe.has(mark));
  const lost = marks.filter((mark) => !found.includes(mark));
  if (wrong.length + lost.length > 0) throw new Error(`${id} holds ${found}, and should hold ${marks}`);
}

/** Every saved state has an owner, and every owner finds its saved state. */
async function checkSnapshots(facts: ServiceFacts): Promise<void> {
  const owned = await query(
    facts,
    `select snapshot_id as id from sessions where snapshot_id is not null and state <> 'destroyed'
     union select id from checkpoints union select id from templates order by id`,
  );
  const { body } = await nodeCaller(facts.nodeSocket).call("GET", "/v1/snapshots");
  const there = SnapshotList.parse(body).snapshots.map(({ snapshot_id }) => snapshot_id);
  const wanted = owned.map(({ id }) => String(id));
  if (there.toSorted().join() !== wanted.toSorted().join())
    throw new Error(`saved states: ${there.toSorted()}; owned: ${wanted.toSorted()}`);
}

async function checkHost(facts: ServiceFacts, api: Api): Promise<void> {
  const { body } = await api.call("GET", "/v1/sessions?limit=500");
  const live = body.sessions
    .filter((s: { state: string }) => s.state === "live")
    .map((s: Id) => s.session_id);
  const node = nodeCaller(facts.nodeSocket);
  const { machines } = MachineList.parse((await node.call("GET", "/v1/machines")).body);
  const owners = machines.map(({ machine_id }) => machine_id.split("-")[0] as string).toSorted();
  if (owners.join() !== live.toSorted().join()) throw new Error(`live: ${live}; machines: ${owners}`);
  if (machines.some(({ state }) => state !== "running"))
    throw new Error(`not running: ${JSON.stringify(machines)}`);
  checkTraces(machineTraces(facts.dataDir), machines.length);
  const { snapshots } = SnapshotList.parse((await node.call("GET", "/v1/snapshots")).body);
  const folders = readdirSync(join(facts.dataDir, "pool/s"));
  if (folders.length !== snapshots.length) throw new Error(`unpublished snapshots among ${folders}`);
}

/** Every machine resource belongs to a machine, or is kept ready for one; a namespace has its slot and its link. */
function checkTraces(traces: MachineTraces, machines: number): void {
  const { folders, uids, slots, netns, links } = traces;
  const isOwned = folders.length === machines && uids === machines && slots <= machines + AHEAD;
  if (!isOwned || netns !== slots || links !== slots)
    throw new Error(`${machines} machines leave ${JSON.stringify(traces)}`);
}

interface Id {
  session_id: string;
}

const numbers = (text: string) => text.split("\n").filter(Boolean).map(Number);
