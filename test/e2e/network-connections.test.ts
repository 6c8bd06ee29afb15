/**
 * Connections on real machines: programs use a credential with nothing configured, the origin's own log has it, and neither
 * the guest nor the service's files do. Revoked means revoked, also after pauses and kills.
 */
import { closeSync, openSync, readFileSync, readSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { Client } from "@vivarium/sdk";
import { afterAll, beforeAll, beforeEach, describe, expect, onTestFinished, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { filesWith } from "../support/files-with.ts";
import { descendantsOf } from "../support/host-processes.ts";
import { type Service, startService } from "../support/service.ts";
import { PUBLIC } from "../support/world/addresses.ts";
import { arrivedIn } from "../support/world/arrived.ts";
import { CA_FILE, Guest } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";
import { fillRegistries, GREETING, REGISTRIES } from "../support/world/registries.ts";

const API = "api.example.com";
const KEYED = "keyed.example.com";
const OTHER = "other.example.com";
const CANARY = `canary-${Math.random().toString(36).slice(2)}`;
/** A text that guests may have: what a search finds it in, it would have found the credential in. */
const MARK = CANARY.replace("canary", "mark");
const allow = { methods: ["GET", "POST"], paths: ["/", "/stream", "/v1/*", "/redirect", "/echo"] };
const API_CONNECTION = {
  name: "api",
  origin: `https://${API}`,
  authentication: { type: "bearer" as const, secret: CANARY },
  allow,
};

/** Answers that are open when their credential is replaced or revoked, for how long before it, and short ones that come beside them. */
const MANY = {
  streams: size({ ci: 10, full: 200 }),
  openMs: size({ ci: 1_000, full: 600_000 }),
  short: size({ ci: 2, full: 8 }),
  /** How often each of them says something: a slow guest reads few a second. */
  tickMs: size({ ci: 50, full: 1_000 }),
};
const STREAM = `/stream?every=${MANY.tickMs}`;
/** Time without word from control after which the gateway injects nothing. */
const LEASE_MS = 20_000;

let network: Network;
let service: Service;
let client: Client;
let folder: string;
let guest: Guest;
const startedAt = Date.now();

beforeAll(async () => {
  network = await startNetwork();
  await network.world.say({
    "*.example.com": { a: [PUBLIC.allowed] },
    [OTHER]: { a: [PUBLIC.second] },
  });
  fillRegistries(network.world);
  folder = await mkdtemp(path.join(tmpdir(), "viv-connections-"));
  const roots = path.join(folder, "roots.pem");
  await writeFile(roots, network.world.ca);
  service = await startService({ env: { VIV_RESOLVERS: PUBLIC.resolver, VIV_CONNECTION_ROOTS: roots } });
  client = new Client({ url: service.facts.url, apiKey: service.facts.apiKey, retries: 0 });
  const { session_id } = await client.sessions.create({
    connections: [
      API_CONNECTION,
      {
        name: "keyed",
        origin: `https://${KEYED}`,
        authentication: { type: "header", secret: CANARY, header_name: "X-Api-Key" },
        allow,
      },
      ...Object.entries(REGISTRIES).map(([name, host]) => ({
        name,
        origin: `https://${host}`,
        authentication: { type: "bearer" as const, secret: CANARY },
        allow: { methods: ["GET"], paths: ["/*"] },
      })),
    ],
  });
  await client.sessions.waitUntilLive(session_id);
  guest = new Guest(client, session_id);
  await guest.equip(network.world.ca);
});
afterAll(async () => {
  if (guest) await client.sessions.delete(guest.id).catch(() => {});
  await service?.stop();
  if (folder) await rm(folder, { recursive: true });
  await network?.close();
});
beforeEach(async () => {
  await network.world.forget();
});

const arrived = (header?: string) => arrivedIn(network.world, header);

describe("with nothing configured", () => {
  test.each([
    ["curl", `curl -sS -m 30 https://${API}/`],
    ["curl with HTTP/2", `curl -sS -m 30 --http2 https://${API}/`],
    ["curl in a shell without environment", `env -i curl -sS -m 30 https://${API}/`],
    [
      "wget",
      `python3 -c 'import urllib.request as u; print(u.urlopen("https://${API}/", timeout=30).read())'`,
    ],
    [
      "requests",
      `python3 -c 'import pip._vendor.requests as r; print(r.get("https://${API}/", timeout=30).text)'`,
    ],
    ["fetch of Node.js", `node -e 'fetch("https://${API}/").then((r) => r.text()).then(console.log)'`],
    ["fetch of Bun", `bun -e 'console.log(await (await fetch("https://${API}/")).text())'`],
  ])("%s gets its answer, and the origin the credential", async (_client, script) => {
    const { code, text } = await guest.tries(script);
    expect([code, text]).toEqual([0, expect.stringContaining(`hello from ${API}`)]);
    expect(await arrived()).toEqual([[`GET ${API} /`, `Bearer ${CANARY}`]]);
  });

  const registries = [
    ["git", `git clone -q https://${REGISTRIES.git}/greeting.git g && cat g/greeting`],
    // In every run the guide's npm has a token: network-credential-guide.test.ts.
    [
      "pip",
      `pip install -q --no-cache-dir --disable-pip-version-check --target p --index-url https://${REGISTRIES.pip}/simple/ greeting && PYTHONPATH=p python3 -c 'import greeting; print(greeting.text)'`,
    ],
    [
      "npm",
      `mkdir n && cd n && npm install --silent --no-audit --no-fund --registry https://${REGISTRIES.npm}/ greeting && node -e 'console.log(require("greeting"))'`,
    ],
  ] as const;
  test.each(registries.slice(0, size({ ci: 1, full: 3 })))(
    "%s gets its package, and every request has the credential",
    async (name, script) => {
      const { code, text } = await guest.tries(`cd /workspace; ${script}`);
      expect([code, text]).toEqual([0, expect.stringContaining(GREETING)]);
      const requests = await arrived();
      expect(requests.length).toBeGreaterThan(0);
      for (const [request, value] of requests)
        expect([request, value]).toEqual([expect.stringContaining(REGISTRIES[name]), `Bearer ${CANARY}`]);
    },
  );

  test("a header of the caller's choice carries the bare secret, and the guest's own copy is dropped", async () => {
    expect(await guest.run(`curl -sS -m 30 -H 'x-api-key: mine' https://${KEYED}/v1/a`)).toContain(
      "not here",
    );
    expect(await arrived("x-api-key")).toEqual([[`GET ${KEYED} /v1/a`, CANARY]]);
  });
});

describe("gets nothing:", () => {
  const curl = (args: string) => `curl -sS -m 30 --cacert ${CA_FILE} ${args}`;
  test.each([
    ["another method", `-X DELETE https://${API}/v1/a`, "connection_rule_denied"],
    ["another path", `https://${API}/v2`, "connection_rule_denied"],
    ["dot segments", `--path-as-is https://${API}/v1/../v2`, "connection_request_invalid"],
    ["another Host", `-H 'Host: ${OTHER}' https://${API}/`, "connection_request_invalid"],
  ])("%s, and nothing of it leaves", async (_what, args, refusal) => {
    // The session's own authority is in the bundle, which --cacert would replace.
    expect(await guest.run(curl(args).replace(`--cacert ${CA_FILE}`, ""))).toContain(refusal);
    expect(await arrived()).toEqual([]);
  });

  test("a second origin, the target of a redirect and plain HTTP", async () => {
    expect(await guest.run(curl(`https://${OTHER}/`))).toContain(`hello from ${OTHER}`);
    expect(await guest.run(curl(`http://${API}/`))).toContain(`hello from ${API}`);
    const both = `cat ${CA_FILE} "$SSL_CERT_FILE" > /tmp/both; curl -sSL -m 30 --cacert /tmp/both 'https://${API}/redirect?to=https://${OTHER}/'`;
    expect(await guest.run(both)).toContain(`hello from ${OTHER}`);
    expect(await arrived()).toEqual([
      [`GET ${OTHER} /`, undefined],
      [`GET ${API} /`, undefined],
      [`GET ${API} /redirect?to=https://${OTHER}/`, `Bearer ${CANARY}`],
      [`GET ${OTHER} /`, undefined],
    ]);
  });

  test("a server of the guest's choice at the origin's name: the gateway resolves the name itself", async () => {
    expect(await guest.run(`curl -sS -m 30 --resolve ${API}:443:${PUBLIC.second} https://${API}/`)).toContain(
      API,
    );
    const sni = (await network.world.take()).filter(({ kind }) => kind === "sni");
    expect(sni).toEqual([{ kind: "sni", host: PUBLIC.allowed, name: API }]);
  });
});

test("an answer that repeats the credential is cut before it", async () => {
  const { text } = await guest.tries(`curl -sS -m 30 https://${API}/echo`);
  expect(text).not.toContain(CANARY);
  expect(await arrived()).toEqual([[`GET ${API} /echo`, `Bearer ${CANARY}`]]);
  await eventually(async () => {
    const { entries } = await log("connection_reflected");
    expect(entries).toMatchObject([{ connection: "api", path: "/echo" }]);
  });
});

test("each request is in the egress log, without its query and without values", async () => {
  await guest.run(`curl -sS -m 30 'https://${API}/v1/a?token=hidden'`);
  await eventually(async () => {
    const { entries } = await log("connection_used");
    expect(entries[0]).toMatchObject({
      ...{ kind: "connection", host: API, port: 443, method: "GET", path: "/v1/a", connection: "api" },
      ...{ rule: 2, status: 404, decision: "allowed" },
    });
    expect(JSON.stringify(entries)).not.toMatch(/hidden|canary/);
  });
});

async function log(reason: string) {
  const answer = await fetch(`${service.facts.url}/v1/sessions/${guest.id}/egress-log?host=${API}`, {
    headers: { authorization: `Bearer ${service.facts.apiKey}` },
  });
  const { entries } = (await answer.json()) as { entries: { reason: string }[] };
  return { entries: entries.filter((entry) => entry.reason === reason) };
}

test("the credential is in the gateway's memory, and in no guest, file, argument or environment", async () => {
  await guest.run(`curl -sS -m 30 https://${API}/`);
  await guest.start("marked", `MARK=${MARK} exec sleep 600`);
  await guest.run(`echo ${MARK} | sudo tee /root/marked >/dev/null`);
  const marked = await guest.run(placesOf(MARK));
  expect(marked).toMatch(/^\/root\/marked$/m);
  expect(marked).toMatch(/^\/proc\/\d+\/environ$/m);
  expect(await guest.run(placesOf(CANARY))).toBe("");

  const { dataDir, logFile, pid: servicePid } = service.facts;
  const found = await filesWith([guest.id, CANARY], [dataDir, logFile]);
  expect(found).toContainEqual(expect.objectContaining({ text: guest.id }));
  expect(found.filter(({ text }) => text === CANARY)).toEqual([]);

  const processes = descendantsOf(servicePid);
  const holders = (text: string, kind: string) =>
    processes.filter(({ pid, argv }) => argv.some((one) => one.includes(kind)) && holds(pid, text)).length;
  expect(holders(MARK, "qemu")).toBeGreaterThan(0);
  expect(holders(CANARY, "qemu")).toBe(0);
  expect(holders(CANARY, "packages/gateway/src/main.ts")).toBeGreaterThan(0);
  const shown = processes
    .flatMap(({ pid }) => ["cmdline", "environ"].map((name) => readOf(pid, name)))
    .join("\n");
  expect(shown).toContain(dataDir);
  expect(shown).not.toContain(CANARY);
  await client.session(guest.id).processes.kill("marked");
});

/** A command that prints the files and environments of the guest that have the text. Files of before the session cannot. */
function placesOf(text: string): string {
  // Classes of two characters each: grep would keep a plain pattern in the guest's memory.
  const pattern = text.replace(/./g, (character) => `[${character}~]`);
  const since = Math.floor(startedAt / 1000) - 60;
  const files = `find / /tmp /run /dev/shm -xdev -type f -newerct @${since} -exec grep -la '${pattern}' {} +`;
  return `sudo sh -c "${files}; grep -la '${pattern}' /proc/[0-9]*/environ" 2>/dev/null || true`;
}

test("a Connection whose time is over is cut in the middle of an answer, and refuses until it is replaced", async () => {
  const { connections, processes } = client.session(guest.id);
  const brief = "brief.example.com";
  const bound = { origin: `https://${brief}`, authentication: API_CONNECTION.authentication, allow };
  const asks = `curl -sS -m 30 https://${brief}/`;
  await connections.create({ ...bound, name: "brief", ttl_seconds: 20 * SLOWNESS });
  await network.world.forget();
  await guest.start("brief", `curl -sSN https://${brief}${STREAM} >/dev/null`);
  // The request comes after its connection has been opened.
  await eventually(async () =>
    expect(await arrived()).toEqual([[`GET ${brief} ${STREAM}`, `Bearer ${CANARY}`]]),
  );
  expect(await openStreams()).toHaveLength(1);
  await eventually(async () => expect(await openStreams()).toEqual([]), 60_000 * SLOWNESS);
  expect((await guest.tries(asks)).text).toContain("connection_expired");
  expect(await arrived()).toEqual([]);
  await connections.replace("brief", bound);
  expect(await guest.run(asks)).toContain(`hello from ${brief}`);
  expect(await arrived()).toEqual([[`GET ${brief} /`, `Bearer ${CANARY}`]]);
  await processes.kill("brief").catch(() => {});
});

test("a session from a checkpoint has neither the Connections of the one before nor its authority", async () => {
  const authorities = `grep -c 'Certificate authority of the session begins' /etc/ssl/certs/ca-certificates.crt;
    ls /usr/local/share/ca-certificates | grep -c session; true`;
  expect(await guest.run(authorities)).toBe("1\n1\n");
  const { checkpoint_id } = await client.checkpoints.create(guest.id);
  const { session_id } = await client.checkpoints.start(checkpoint_id);
  try {
    await client.sessions.waitUntilLive(session_id);
    const child = new Guest(client, session_id);
    expect(await child.run(authorities)).toBe("0\n0\n");
    await network.world.forget();
    expect((await child.tries(`curl -sS -m 30 https://${API}/`)).text).toContain("certificate");
    expect(await child.run(`curl -sS -m 30 --cacert ${CA_FILE} https://${API}/`)).toContain(
      `hello from ${API}`,
    );
    expect(await arrived()).toEqual([[`GET ${API} /`, undefined]]);
    await guest.run(`curl -sS -m 30 https://${API}/`);
    expect(await arrived()).toEqual([[`GET ${API} /`, expect.stringContaining(`Bearer ${CANARY}`)]]);
  } finally {
    await client.sessions.delete(session_id);
    await client.checkpoints.delete(checkpoint_id);
  }
});

test("after a pause, after kills of gateway, node and control, it works again; a change meanwhile counts", async () => {
  await client.sessions.pause(guest.id);
  await client.session(guest.id).connections.replace("api", {
    origin: `https://${API}`,
    authentication: { type: "bearer", secret: `${CANARY}-2` },
    allow,
  });
  await guest.run(`curl -sS -m 30 https://${API}/`);
  expect(await arrived()).toEqual([[`GET ${API} /`, `Bearer ${CANARY}-2`]]);
  for (const part of ["gateway", "node", "control"]) {
    killPart(part);
    await eventually(async () => {
      await network.world.forget();
      expect(await guest.run(`curl -sS -m 30 https://${API}/ || true`)).toContain(`hello from ${API}`);
      expect(await arrived()).toEqual([[`GET ${API} /`, `Bearer ${CANARY}-2`]]);
    }, 60_000);
  }
});

const openStreams = async () =>
  (await network.world.open()).filter(({ host, port }) => host === PUBLIC.allowed && port === 443);

/**
 * Opens many answers without end, leaves them open, and begins to ask for short ones, too, without pause. Returns the connections
 * with which the long ones have come to the origin, the same from their beginning. What is cut is asked for again at once.
 */
async function openMany(): Promise<number[]> {
  onTestFinished(endMany);
  await guest.startAsking("many", { host: API, path: STREAM, atOnce: MANY.streams });
  await eventually(async () => expect((await openStreams()).length).toBe(MANY.streams), 120_000);
  const opened = (await openStreams()).map(({ id }) => id);
  await new Promise((resolve) => setTimeout(resolve, MANY.openMs));
  expect((await openStreams()).map(({ id }) => id)).toEqual(opened);
  await guest.startAsking("short", { host: API, path: "/", atOnce: MANY.short });
  await network.world.forget();
  await eventually(async () => {
    const requests = (await arrived()).map(([request]) => request);
    expect(requests).toContain(`GET ${API} /`);
  }, 120_000);
  return opened;
}

/** Makes a change, and looks at once: of these connections none is open a second later, and what arrived until now is forgotten. */
async function cutBy(change: () => Promise<unknown>, opened: number[]): Promise<void> {
  await change();
  // Bytes that left before are on their way for a moment where processors are busy; these requests come behind them.
  for (let turn = 0; turn < 2; turn++) await (await fetch(`http://${PUBLIC.allowed}/`)).text();
  await network.world.take();
  await eventually(async () => {
    const open = new Set((await openStreams()).map(({ id }) => id));
    expect(opened.filter((id) => open.has(id))).toEqual([]);
  }, 1_000);
}

/** Ends what `openMany` has started; does nothing if it has ended. */
async function endMany(): Promise<void> {
  for (const name of ["short", "many"])
    await client
      .session(guest.id)
      .processes.kill(name)
      .catch(() => {});
}

test(
  "many answers that are open end with a replacement, and nothing of the old credential is sent after it",
  async () => {
    const { connections } = client.session(guest.id);
    const replaceBy = (secret: string) =>
      connections.replace("api", {
        origin: `https://${API}`,
        authentication: { type: "bearer", secret },
        allow,
      });
    await replaceBy(`${CANARY}-old`);
    const opened = await openMany();
    await cutBy(() => replaceBy(`${CANARY}-new`), opened);
    const requests: Awaited<ReturnType<typeof arrived>> = [];
    await eventually(async () => {
      requests.push(...(await arrived()));
      const paths = requests.map(([request]) => request);
      expect(paths).toContain(`GET ${API} /`);
      expect(paths.filter((path) => path === `GET ${API} ${STREAM}`).length).toBeGreaterThanOrEqual(
        MANY.streams,
      );
    }, 240_000);
    expect([...new Set(requests.map(([, value]) => value))]).toEqual([`Bearer ${CANARY}-new`]);
    await endMany();
  },
  MANY.openMs + 480_000 * SLOWNESS,
);

test(
  "while control does not answer, nothing is injected after 20 s, and other traffic continues",
  async () => {
    const tries = (host: string, file: string, more = "") =>
      `while sleep 1; do curl -sS -m ${20 * SLOWNESS} ${more} -o /dev/null -w '%{http_code}\\n' https://${host}/ >> ${file} 2>&1; done`;
    await guest.start("bound", tries(API, "/tmp/bound"));
    await guest.start("other", tries(OTHER, "/tmp/other", `--cacert ${CA_FILE}`));
    onTestFinished(async () => {
      for (const name of ["bound", "other"]) await client.session(guest.id).processes.kill(name);
    });
    const last = (file: string) => guest.run(`tail -n 1 ${file}`);
    await eventually(async () =>
      expect([await last("/tmp/bound"), await last("/tmp/other")]).toEqual(["200\n", "200\n"]),
    );
    signalPart("control", "SIGSTOP");
    await new Promise((resolve) => setTimeout(resolve, LEASE_MS + 5_000 * SLOWNESS));
    await network.world.forget();
    await new Promise((resolve) => setTimeout(resolve, 5_000 * SLOWNESS));
    const requests = await arrived();
    signalPart("control", "SIGCONT");
    expect(requests.filter(([, value]) => value !== undefined)).toEqual([]);
    expect(requests.map(([request]) => request)).toContain(`GET ${OTHER} /`);
    await eventually(async () => expect(await guest.run("sort -u /tmp/bound")).toMatch(/502/));
    expect(await guest.run("sort -u /tmp/other")).toBe("200\n");
    await eventually(async () => expect(await last("/tmp/bound")).toBe("200\n"), 60_000);
  },
  480_000 * SLOWNESS,
);

test(
  "a revoked Connection ends its open answers, and refuses for good: after a wake and kills as well",
  async () => {
    const opened = await openMany();
    await cutBy(() => client.session(guest.id).connections.revoke("api"), opened);
    // Beside so many that ask without pause, this one may be cut.
    await guest.tries(`curl -sS -m 30 https://${API}/`);
    expect(await arrived()).toEqual([]);
    await endMany();
    await eventually(async () =>
      expect((await guest.tries(`curl -sS -m 30 https://${API}/`)).text).toContain("connection_revoked"),
    );
    expect(await arrived()).toEqual([]);
    await guest.start(
      "tries",
      `while sleep 0.2; do curl -sS -m 5 https://${API}/ >/dev/null 2>&1; echo tried >> /tmp/tries; done`,
    );
    const untilTried = async () => {
      const tried = async () => Number(await guest.run("wc -l < /tmp/tries"));
      let before: number | undefined;
      await eventually(async () => {
        before ??= await tried();
        // The second try after the look has begun after it.
        expect(await tried()).toBeGreaterThan(before + 1);
      }, 60_000);
    };
    await untilTried();
    for (const part of ["gateway", "node", "control"]) {
      killPart(part);
      await untilTried();
    }
    await client.sessions.pause(guest.id);
    await untilTried();
    expect(await arrived()).toEqual([]);
    await eventually(async () =>
      expect(await guest.run(`curl -sS -m 30 https://${API}/`)).toContain("connection_revoked"),
    );
    // Positive control: another Connection of the session still works.
    expect(await guest.run(`curl -sS -m 30 https://${KEYED}/`)).toContain(`hello from ${KEYED}`);
  },
  MANY.openMs + 480_000 * SLOWNESS,
);

test(
  "the audit log has the uses of each Connection by minute, without values, and its chain is whole",
  async () => {
    await eventually(async () => {
      const { refused, sent } = await usesOf("api");
      expect(sent).toBeGreaterThan(10);
      // Since the revocation.
      expect(refused).toBeGreaterThan(10);
      expect((await usesOf("keyed")).sent).toBeGreaterThan(1);
    }, 150_000);
    expect((await client.audit.verify()).findings).toEqual([]);
  },
  480_000 * SLOWNESS,
);

async function usesOf(name: string): Promise<{ sent: number; refused: number }> {
  const uses = { sent: 0, refused: 0 };
  const filter = { sessionId: guest.id, action: "connection.use", target: name };
  for await (const entry of client.audit.list(filter)) {
    expect(JSON.stringify(entry)).not.toContain(CANARY);
    uses.sent += entry.meta.sent ?? 0;
    uses.refused += entry.meta.refused ?? 0;
  }
  return uses;
}

function killPart(part: string): void {
  signalPart(part, "SIGKILL");
}

function signalPart(part: string, signal: NodeJS.Signals): void {
  const found = descendantsOf(service.facts.pid).filter(({ argv }) =>
    argv.some((argument) => argument.includes(`packages/${part}/src/main.ts`)),
  );
  expect(found.length).toBeGreaterThan(0);
  for (const { pid } of found) process.kill(pid, signal);
}

function readOf(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, "utf8");
  } catch {
    // It has ended.
    return "";
  }
}

/** Whether the writable memory of a process contains the text. */
function holds(pid: number, text: string): boolean {
  return readOf(pid, "maps")
    .split("\n")
    .some((line) => {
      const [, from = "0", to = "0"] = /^([0-9a-f]+)-([0-9a-f]+) rw/.exec(line) ?? [];
      return isIn(pid, text, { from: Number.parseInt(from, 16), to: Number.parseInt(to, 16) });
    });
}

const BLOCK = 64 * 1024 * 1024;

function isIn(pid: number, text: string, { from, to }: { from: number; to: number }): boolean {
  if (from === to) return false;
  try {
    const file = openSync(`/proc/${pid}/mem`, "r");
    try {
      const bytes = Buffer.alloc(Math.min(BLOCK, to - from));
      // Blocks overlap, so that a text on the border of two is found.
      for (let at = from; at < to; at += BLOCK - text.length) {
        const read = readSync(file, bytes, 0, Math.min(bytes.length, to - at), at);
        if (bytes.subarray(0, read).includes(text)) return true;
      }
    } finally {
      closeSync(file);
    }
  } catch {
    // Some mappings cannot be read.
  }
  return false;
}
