/** Rows about machines: a load by hand beside a create through the service, an exec's floor beside its round trip. */
import { join } from "node:path";
import { MachineList, StartTimings } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { createLog } from "@vivarium/kit/log";
import { Client } from "@vivarium/sdk";
import { prepareQemuRoot } from "../../packages/node/src/host/qemu-root.ts";
import { baselineKey, findBaselines } from "../../packages/node/src/snapshots/find-baselines.ts";
import type { Loadable } from "../../packages/node/src/snapshots/manifest.ts";
import { TapNamespace } from "../support/machine-by-hand.ts";
import { nodeCaller } from "../support/node-caller.ts";
import type { ServiceFacts } from "../support/service.ts";
import { loadByHand } from "./load-by-hand.ts";
import { percentile, type Row, repeated, row, timed } from "./samples.ts";

const REFILL_MS = 6_000;
const STAGES = ["queue", "disk", "load", "handshake"] as const;

export async function findBaseline(facts: ServiceFacts, imagesDir: string): Promise<Loadable> {
  const qemu = await prepareQemuRoot(facts.dataDir);
  const log = createLog("bench", "error");
  const baselines = await findBaselines({ imagesDir, qemu, log });
  const baseline = baselines.get(baselineKey("base", "small"));
  if (!baseline) throw new Error(`no baseline of base/small in ${imagesDir}: run ./setup`);
  return baseline;
}

export async function createRows(facts: ServiceFacts, baseline: Loadable, n: number): Promise<Row[]> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const firstAnswers: number[] = [];
  const firstExecs: number[] = [];
  const creates: number[] = [];
  const channel: number[] = [];
  const stages: StartTimings[] = [];
  const network = await TapNamespace.make("bench");
  try {
    // Alternating, so that a noisy minute of the host affects both alike. The first round warms up.
    for (let i = 0; i <= n; i++) {
      const byHand = await loadByHand(baseline, join(facts.dataDir, "pool"), network);
      const create = await createToFirstExec(facts, client);
      if (i === 0) continue;
      firstAnswers.push(byHand.firstAnswerMs);
      firstExecs.push(byHand.firstExecMs);
      creates.push(create.ms);
      stages.push(create.stages);
      channel.push(...byHand.channelMs);
    }
  } finally {
    await network.remove();
  }
  const ratio = percentile(creates, 50) / percentile(firstAnswers, 50);
  const execRatio = percentile(creates, 50) / percentile(firstExecs, 50);
  return [
    row("F1 load, by hand, to the agent's first answer", "ms", firstAnswers),
    row("F1 load, by hand, to the first exec", "ms", firstExecs),
    row("agent's channel: round trip with nothing run", "ms", channel),
    row(
      "pool miss: create to first exec",
      "ms",
      creates,
      `${ratio.toFixed(2)} × F1 (goal ≤ 1.25); ${execRatio.toFixed(2)} × F1 with its first exec`,
    ),
    ...stageRows(stages),
  ];
}

/** A create that finds a machine ready. Between two creates the node gets the time to make the next machine. */
export async function poolHitRows(facts: ServiceFacts, n: number): Promise<Row[]> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const creates: number[] = [];
  const runs: number[] = [];
  const inSession: number[] = [];
  for (let i = 0; i <= n; i++) {
    await sleep(REFILL_MS);
    const { ms } = await createToFirstExec(facts, client);
    await sleep(REFILL_MS);
    const runMs = await timed(() => client.run({ language: "python", code: "print(1)" }));
    await sleep(REFILL_MS);
    const { session_id: id } = await client.sessions.create();
    await client.sessions.waitUntilLive(id);
    const pythonMs = await timed(() => client.sessions.exec(id, { command: ["python3", "-c", "print(1)"] }));
    await client.sessions.delete(id);
    if (i === 0) continue;
    creates.push(ms);
    runs.push(runMs);
    inSession.push(pythonMs);
  }
  const saved = await savedTemplateStarts(facts, client, n);
  const over = percentile(runs, 50) / percentile(inSession, 50);
  return [
    row("pool hit: create to first exec", "ms", creates, "goal ≤ 150 here"),
    row("print(1) in Python, by exec in a session fresh from the pool", "ms", inSession),
    row("stateless run of print(1), pool hit", "ms", runs, `${over.toFixed(2)} × the exec (goal ≤ 1.25)`),
    row("start from a saved template to the first exec, nothing ready", "ms", saved.cold),
    row("start from a saved template to the first exec, one loaded ahead", "ms", saved.ahead),
  ];
}

/** The first two starts of each template find no machine ready; from the second start on the node keeps one. */
async function savedTemplateStarts(facts: ServiceFacts, client: Client, n: number) {
  const cold: number[] = [];
  const ahead: number[] = [];
  const { session_id: id } = await client.sessions.create();
  for (let i = 0; i < n; i++) {
    const template = `saved-${i}`;
    await client.templates.save(id, { name: template });
    const start = async () => (await createToFirstExec(facts, client, { template })).ms;
    cold.push(await start());
    await sleep(REFILL_MS);
    cold.push(await start());
    await sleep(REFILL_MS);
    ahead.push(await start());
    await client.templates.delete(template);
  }
  await client.sessions.delete(id);
  return { cold, ahead };
}

/** The node's own stage timings, so that the row shows the parts of a create's time. */
async function createToFirstExec(facts: ServiceFacts, client: Client, request = {}) {
  let id = "";
  const ms = await timed(async () => {
    id = (await client.sessions.create(request)).session_id;
    await client.sessions.exec(id, { command: ["true"] });
  });
  const { body } = await nodeCaller(facts.nodeSocket).call("GET", "/v1/machines");
  const machine = MachineList.parse(body).machines.find(({ machine_id }) => machine_id.startsWith(id));
  await client.sessions.delete(id);
  return { ms, stages: StartTimings.parse(machine?.timings) };
}

function stageRows(stages: StartTimings[]): Row[] {
  return STAGES.map((stage) =>
    row(
      `  of it ${stage}`,
      "ms",
      stages.map((each) => each[stage]),
    ),
  );
}

export async function execRows(facts: ServiceFacts, n: number): Promise<Row[]> {
  const client = new Client({ url: facts.url, apiKey: facts.apiKey });
  const node = nodeCaller(facts.nodeSocket);
  const { session_id: id } = await client.sessions.create();
  try {
    for (let i = 0; i < 10; i++) await client.sessions.exec(id, { command: ["true"] });
    const { body } = await node.call("GET", "/v1/machines");
    const { machines } = MachineList.parse(body);
    const machineId = machines.find(({ machine_id }) => machine_id.startsWith(id))?.machine_id ?? "";
    const inGuest: number[] = [];
    const throughNode: number[] = [];
    const throughApi = await repeated(n, async () => {
      const nodeMs = await timed(async () => {
        const done = await node.exec(machineId, { argv: ["true"] });
        inGuest.push((done.exit?.duration_us ?? Number.NaN) / 1000);
      });
      throughNode.push(nodeMs);
      return timed(() => client.sessions.exec(id, { command: ["true"] }));
    });
    const over = (percent: number) =>
      (percentile(throughApi, percent) - percentile(inGuest, percent)).toFixed(1);
    return [
      row("F3 exec of true, measured in the guest", "ms", inGuest),
      row("node call: exec of true over the node's socket", "ms", throughNode),
      row(
        "exec round trip of true, live session",
        "ms",
        throughApi,
        `F3 + ${over(50)} ms p50 (goal ≤ 3), + ${over(95)} ms p95 (goal ≤ 10)`,
      ),
    ];
  } finally {
    await client.sessions.delete(id);
  }
}
