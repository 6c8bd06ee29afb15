/** Machines that are kept ready: a session never shares one, and losing one loses nothing. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { OrgRecord } from "@vivarium/contract/api";
import { NodeInfo } from "@vivarium/contract/node";
import { sleep } from "@vivarium/kit/clock";
import { freePort } from "@vivarium/kit/test-support/free-port";
import { Client } from "@vivarium/sdk";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { readProcess } from "../support/host-processes.ts";
import { sh } from "../support/http.ts";
import { machinePid } from "../support/machine-traces.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { type Service, servicePid, startService } from "../support/service.ts";

let own: Service;
let metricsAddress: string;
let client: Client;

beforeAll(async () => {
  metricsAddress = `127.0.0.1:${await freePort()}`;
  // One of each kind, at any demand: the tests distinguish them by their number.
  own = await startService({
    env: { VIV_WARM_MACHINES: "1", VIV_MAX_WARM_MACHINES: "1", VIV_METRICS_LISTEN: metricsAddress },
  });
  client = new Client({ url: own.facts.url, apiKey: own.facts.apiKey, retries: 0 });
});
afterAll(() => own?.stop());

const BASE = { template: "base", size: "small", ready: 1, wanted: 1 };

/** The process of the waiting machine, once the node reports one. */
const warmPid = (except: number[] = []): Promise<number> =>
  eventually(async () => {
    const { body } = await nodeCaller(own.facts.nodeSocket).call("GET", "/v1/info");
    expect(NodeInfo.parse(body).warm).toEqual([BASE]);
    const pids = machineProcesses().filter((pid) => !except.includes(pid));
    expect(pids).toHaveLength(1);
    return pids[0] as number;
  }, 60_000);

function machineProcesses(): number[] {
  const slots = "/run/vivarium/slots";
  const uids = readdirSync(slots)
    .filter((name) => /^\d+$/.test(name) && readFileSync(join(slots, name), "utf8") === own.facts.dataDir)
    .map((name) => 700_000 + Number(name));
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((name) => readProcess(Number(name)))
    .flatMap((found) =>
      found && uids.includes(found.uid) && /qemu-system/.test(found.argv[0] ?? "") ? [found.pid] : [],
    );
}

/**
 * A session, and the machine that waited when it was created. While the node checks the waiting machine, which it does
 * every minute for a moment, a create uses the slow path: then this tries again.
 */
async function createOnWarm(request: object = {}): Promise<{ id: string; waiting: number }> {
  for (let attempt = 1; ; attempt++) {
    const waiting = await warmPid();
    const { session_id: id } = await client.sessions.create(request);
    await client.sessions.waitUntilLive(id);
    if (machinePid(own.facts.dataDir, id) === waiting || attempt === 3) return { id, waiting };
    await client.sessions.delete(id);
  }
}

async function org(): Promise<OrgRecord> {
  const headers = { authorization: `Bearer ${own.facts.apiKey}` };
  return (await (await fetch(`${own.facts.url}/v1/org`, { headers })).json()) as OrgRecord;
}

const LOOK = sh(
  "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; head -c 16 /dev/urandom | od -An -tx1; " +
    "ls -A /workspace /tmp | tr '\\n' ' '; id -un; pwd",
);

test("the organisation's capacity counts the machine that waits", async () => {
  await warmPid();
  await eventually(async () => {
    expect((await org()).capacity.pool).toEqual([BASE]);
  });
});

test("the metrics count it", async () => {
  await warmPid();
  await eventually(async () => {
    const text = await (await fetch(`http://${metricsAddress}/metrics`)).text();
    expect(text).toContain('vivarium_warm_machines{kind="baseline",template="base",size="small"} 1\n');
  });
});

test("a create takes the machine that waits, and it is the session's own in everything", async () => {
  const looks: string[][] = [];
  for (let i = 0; i < 2; i++) {
    const { id, waiting } = await createOnWarm();
    const { stdout } = await client.sessions.exec(id, { command: LOOK });
    expect(machinePid(own.facts.dataDir, id)).toBe(waiting);
    const lines = stdout.trimEnd().split("\n");
    expect(lines[0]).toBe(id);
    // The warm-up left no file behind.
    expect(lines.slice(4).join("\n")).toBe("/tmp:  /workspace: sandbox\n/workspace");
    looks.push(lines);
    await client.sessions.delete(id);
  }
  const [first = [], second = []] = looks;
  for (const line of [0, 1, 2, 3]) expect(first[line]).not.toBe(second[line]);
});

test("a create that names the current version takes the machine that waits for creates without a version", async () => {
  const { version } = await client.templates.get("base");
  const { id, waiting } = await createOnWarm({ template: `base@${version}` });
  expect(machinePid(own.facts.dataDir, id)).toBe(waiting);
  await client.sessions.delete(id);
});

test("a waiting machine that is killed costs the next create nothing", async () => {
  process.kill(await warmPid(), "SIGKILL");
  const { session_id: id } = await client.sessions.create();
  expect((await client.sessions.exec(id, { command: ["echo", "here"] })).stdout).toBe("here\n");
  await client.sessions.delete(id);
});

test("a waiting machine that is stuck is given up for another", async () => {
  const stuck = await warmPid();
  process.kill(stuck, "SIGSTOP");
  const { session_id: id } = await client.sessions.create();
  expect((await client.sessions.exec(id, { command: ["echo", "here"] })).stdout).toBe("here\n");
  expect(machinePid(own.facts.dataDir, id)).not.toBe(stuck);
  expect(readProcess(stuck)).toBeUndefined();
  await client.sessions.delete(id);
});

test("a session that asks for less power gets a machine without it, also from the pool", async () => {
  const { id, waiting } = await createOnWarm({ no_sudo: true });
  const tried = await client.sessions.exec(id, { command: sh("sudo -n true") });
  expect(machinePid(own.facts.dataDir, id)).toBe(waiting);
  expect(tried.exit_code).not.toBe(0);
  await client.sessions.delete(id);
});

test("a template that is used again and again has a waiting machine, of which no instruction has run", async () => {
  const origin = await client.sessions.create();
  // A guest that ran ahead, like those of baselines, would have had another name meanwhile.
  const namer =
    "(while :; do hostname >> /workspace/names; sleep 0.05; done) > /dev/null 2>&1 & until [ -s /workspace/names ]; do sleep 0.1; done";
  await client.sessions.exec(origin.session_id, { command: sh(namer) });
  await client.templates.save(origin.session_id, { name: "hot" });
  await client.sessions.delete(origin.session_id);
  const start = async () => (await client.sessions.create({ template: "hot" })).session_id;
  const first = await start();
  await client.sessions.waitUntilLive(first);
  await sleep(1_100);
  const second = await start();
  await client.sessions.waitUntilLive(second);
  const others = [first, second].map((id) => machinePid(own.facts.dataDir, id));

  const waiting = await eventually(async () => {
    const { pool } = (await org()).capacity;
    expect(pool).toContainEqual({ template: "hot@1", size: "small", ready: 1, wanted: 1 });
    const { body } = await nodeCaller(own.facts.nodeSocket).call("GET", "/v1/info");
    const { warm = [] } = NodeInfo.parse(body);
    expect(warm).toHaveLength(2);
    return machineProcesses().filter((pid) => !others.includes(pid));
  }, 60_000);
  const third = await start();
  const names = sh("until grep -q $(hostname) /workspace/names; do sleep 0.1; done; uniq /workspace/names");
  const { stdout } = await client.sessions.exec(third, { command: names });
  expect(waiting).toContain(machinePid(own.facts.dataDir, third));
  expect(stdout).toBe(`${origin.session_id}\n${third}\n`);
  const ids = [first, second, third];
  const reads = ids.map((id) =>
    client.sessions.exec(id, { command: sh("head -c 16 /dev/urandom | od -An -tx1") }),
  );
  const random = (await Promise.all(reads)).map(({ stdout: text }) => text);
  expect(new Set(random).size).toBe(3);

  for (const id of ids) await client.sessions.delete(id);
  await client.templates.delete("hot");
  // Waiting machines are removed with their template.
  await eventually(() => expect(machineProcesses().length).toBeLessThanOrEqual(1));
});

test("kill -9 of the node leaves no orphan; another machine waits soon after", async () => {
  const waiting = await warmPid();
  process.kill(servicePid(own.facts, "node"), "SIGKILL");
  await eventually(() => expect(readProcess(waiting)).toBeUndefined());
  expect(await warmPid([waiting])).not.toBe(waiting);
});
