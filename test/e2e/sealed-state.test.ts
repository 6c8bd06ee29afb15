/**
 * The state of a session with secrets on a real machine: no file of the service contains a secret that the guest has in its memory
 * and on its disk, and the session, its copies and its checkpoints have both again.
 */
import { createHash, randomBytes } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { STATE_KEY_HEADER } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startSpec } from "../contract/contracted-node.ts";
import { flipBit } from "../support/damage.ts";
import { eventually } from "../support/eventually.ts";
import { filesWith } from "../support/files-with.ts";
import { ask, client, service, sh } from "../support/http.ts";
import { machinePid } from "../support/machine-traces.ts";
import { nodeCaller } from "../support/node-caller.ts";
import { servicePid } from "../support/service.ts";

const SECRET = `canary-${randomBytes(8).toString("hex")}`;
/** The same of a session without secrets, which the search finds. */
const PLAIN = `plain-${randomBytes(8).toString("hex")}`;
const SUM = createHash("sha256").update(SECRET).digest("hex");
/** Has the canary in its memory, and shows that it runs by a number that grows. */
const HOLDER = `
import hashlib, os, time
canary = os.environ["CANARY"].encode()
with open("file", "wb") as file:
    file.write(canary)
    os.fsync(file.fileno())
for n in range(1_000_000):
    with open("alive.new", "w") as file:
        file.write(f"{n} {hashlib.sha256(canary).hexdigest()}")
    os.rename("alive.new", "alive")
    time.sleep(0.05)
`;

let id: string;
let plain: string;
const others: string[] = [];
beforeAll(async () => {
  const create = async (body: object) => (await client.sessions.create(body)).session_id;
  [id, plain] = await Promise.all([
    create({ secrets: { CANARY: SECRET } }),
    create({ env: { CANARY: PLAIN } }),
  ]);
  for (const session of [id, plain]) {
    await client.sessions.waitUntilLive(session);
    await client.session(session).processes.start({ name: "holder", command: ["python3", "-c", HOLDER] });
    await eventually(async () => expect(await stateOf(session)).toMatchObject({ n: expect.any(Number) }));
    await client.sessions.exec(session, { command: ["sync"] });
  }
});
afterAll(async () => {
  for (const session of [id, plain, ...others]) await client.sessions.delete(session).catch(() => {});
});

/** The holder's number, the sum of its canary, and that of the file's content. */
async function stateOf(session: string) {
  const command = sh("cat alive; echo; sha256sum < file");
  const { stdout } = await client.sessions.exec(session, { command });
  const [, n = "", memory, file] = /^(\d+) (\w+)\n(\w+)/.exec(stdout) ?? [];
  return { n: n === "" ? undefined : Number(n), memory, file };
}

/** Waits until the holder runs, and expects what it had from the start. */
async function expectWhole(session: string): Promise<void> {
  const { n = 0, ...before } = await stateOf(session);
  expect(before).toEqual({ memory: SUM, file: SUM });
  await expect.poll(async () => (await stateOf(session)).n).toBeGreaterThan(n);
}

async function post(path: string, body?: object) {
  const answer = await ask(`/v1/${path}`, { method: "POST", body });
  expect(answer.status, JSON.stringify(answer.body)).toBeLessThan(300);
  // biome-ignore lint/suspicious/noExplicitAny: what the tests read is asserted by them.
  return answer.body as any;
}

/** Files of the pool, the database and the log with one of the texts. Disks of templates are left out: no guest writes them. */
const filesOfServiceWith = (texts: string[]) =>
  filesWith(texts, [service.dataDir, service.logFile], ["base.raw", "layer.qcow2", "under.qcow2"]);

test("a paused session's secret is in no file, where that of a session without secrets is in its memory and disk", async () => {
  await expectWhole(id);
  for (const session of [id, plain]) await post(`sessions/${session}/pause`);
  const found = await filesOfServiceWith([SECRET, PLAIN]);
  expect(found.filter(({ text }) => text === SECRET)).toEqual([]);
  const names = found.map(({ file }) => file.slice(file.lastIndexOf("/") + 1));
  expect(names).toEqual(expect.arrayContaining(["mem", "disk.qcow2"]));
  await client.sessions.delete(plain);
});

test("a wake brings back its process and its file", async () => {
  await post(`sessions/${id}/resume`);
  await expectWhole(id);
});

test("a fork and a session from a checkpoint have them too, and no file has the secret", async () => {
  const { children } = await post(`sessions/${id}/fork`);
  others.push(...children);
  await expectWhole(children[0]);
  await client.sessions.delete(children[0]);
  const { checkpoint_id: chk } = await post(`sessions/${id}/checkpoints`);
  const { session_id: started } = await post(`checkpoints/${chk}/sessions`);
  others.push(started);
  await expectWhole(started);
  expect(await filesOfServiceWith([SECRET])).toEqual([]);
  await client.sessions.delete(started);

  const node = nodeCaller(service.nodeSocket);
  const wrong = { [STATE_KEY_HEADER]: randomBytes(32).toString("base64url") };
  const machine = `/v1/machines/${randomId()}-1`;
  for (const headers of [undefined, wrong]) {
    const refused = await node.call("PUT", machine, startSpec({ snapshot_id: chk }), headers);
    expect(refused).toMatchObject({ status: 409, body: { code: "wrong_state_key" } });
    expect(await node.call("GET", machine)).toMatchObject({ status: 404 });
  }

  const dir = join(service.dataDir, "pool/s", chk);
  await flipBit(dir, "mem.sealed", statSync(join(dir, "mem.sealed")).size >> 1, true);
  const damaged = await ask(`/v1/checkpoints/${chk}/sessions`, { method: "POST" });
  expect(damaged).toMatchObject({ status: 500, body: { code: "internal" } });
  await ask(`/v1/checkpoints/${chk}`, { method: "DELETE" });
});

/** Counts what the guest has of a session's authority: marks in the bundle, and the certificate's own file. */
const AUTHORITY = `grep -c 'Certificate authority of the session begins' /etc/ssl/certs/ca-certificates.crt;
  ls /usr/local/share/ca-certificates | grep session; env | grep -c canary; pgrep -c python3; cat kept; true`;

test("a template of a session with secrets and a Connection is its disk alone, from which a session boots", async () => {
  const authentication = { type: "bearer", secret: `canary-${SECRET}` } as const;
  const connections = [
    {
      name: "web",
      origin: "https://example.com",
      authentication,
      allow: { methods: ["GET"], paths: ["/*"] },
    },
  ];
  const { session_id: bound } = await client.sessions.create({ secrets: { CANARY: SECRET }, connections });
  others.push(bound);
  await client.sessions.waitUntilLive(bound);
  await client.session(bound).processes.start({ name: "holder", command: ["python3", "-c", HOLDER] });
  await eventually(async () => expect(await stateOf(bound)).toMatchObject({ memory: SUM }));
  const run = async (session: string, script: string) =>
    (await client.sessions.exec(session, { command: sh(script) })).stdout;
  await run(bound, "echo kept > kept; rm -f file");
  expect(await run(bound, AUTHORITY)).toBe("1\nvivarium-session.crt\n1\n1\nkept\n");

  const live = await post(`sessions/${bound}/templates`, { name: "tools" });
  expect(live).toMatchObject({ version: "1", memory: false });
  await expectAlive(bound);
  await post(`sessions/${bound}/pause`);
  expect(await post(`sessions/${bound}/templates`, { name: "tools" })).toMatchObject({
    version: "2",
    memory: false,
  });
  await client.sessions.delete(bound);

  for (const template of ["tools@1", "tools@2"]) {
    const { session_id: started } = await client.sessions.create({ template });
    others.push(started);
    await client.sessions.waitUntilLive(started);
    expect(await run(started, AUTHORITY), template).toBe("0\n0\n0\nkept\n");
    if (template === "tools@2") {
      await post(`sessions/${started}/pause`);
      await post(`sessions/${started}/resume`);
      expect(await run(started, "cat kept"), template).toBe("kept\n");
    }
    expect(await filesOfServiceWith([SECRET])).toEqual([]);
    await client.sessions.delete(started);
  }
  expect((await ask("/v1/templates/tools", { method: "DELETE" })).status).toBe(204);
});

test("no process that has credentials may write a core file", async () => {
  const machine = machinePid(service.dataDir, id);
  const pids = [
    ...(["control", "node", "gateway"] as const).map((name) => servicePid(service, name)),
    machine,
  ];
  for (const pid of pids) expect(limitOfCores(pid), String(pid)).toEqual(["0", "0"]);
});

/** The soft and the hard limit of a process. */
function limitOfCores(pid: number): string[] {
  const limits = readFileSync(`/proc/${pid}/limits`, "utf8");
  return /^Max core file size +(\S+) +(\S+)/m.exec(limits)?.slice(1) ?? [];
}

/** Waits until the holder's number has grown. */
async function expectAlive(session: string): Promise<void> {
  const read = async () =>
    Number.parseInt((await client.sessions.exec(session, { command: ["cat", "alive"] })).stdout, 10);
  const before = await read();
  await expect.poll(read, { timeout: 60_000 }).toBeGreaterThan(before);
}
