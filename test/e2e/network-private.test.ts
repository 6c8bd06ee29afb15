/**
 * On premises: a mirror of packages at a private address, which the operator opens to sessions, and settings for guests
 * from one file. Every other private address stays closed, and all of them without the opening, by the world's own
 * counters.
 */
import { mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { NEVER_RANGES } from "@vivarium/contract/gateway";
import { size } from "@vivarium/kit/test-support/sizes";
import { Client } from "@vivarium/sdk";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { askAt } from "../support/asking.ts";
import { eventually } from "../support/eventually.ts";
import { type Service, startService } from "../support/service.ts";
import { LINK, NEVER, PUBLIC } from "../support/world/addresses.ts";
import { Guest, hex, type Probe } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";
import { fillMirror, GREETING } from "../support/world/registries.ts";

const PORT = 8080;
const MIRROR = { name: "mirror.example.com", port: PORT };
const URL_OF_MIRROR = `http://${MIRROR.name}:${PORT}`;
const RUN_MS = 170_000;
/** The mirror; a range with this host's own address in it. */
const OPEN = `${NEVER.ten}:${PORT},${NEVER.ten}:443,10.66.255.0/24:${PORT}`;
const SETTINGS = {
  variables: {
    PIP_INDEX_URL: `${URL_OF_MIRROR}/simple/`,
    PIP_TRUSTED_HOST: MIRROR.name,
    NPM_CONFIG_REGISTRY: `${URL_OF_MIRROR}/`,
    no_proxy: MIRROR.name,
  },
  apt_sources: [`deb [trusted=yes] ${URL_OF_MIRROR}/debian trixie main`],
};
const ZONE = {
  [MIRROR.name]: { a: [NEVER.ten] },
  "inner.example.com": { a: [NEVER.oneNineTwo] },
  "mixed.example.com": { a: [NEVER.ten, NEVER.oneNineTwo] },
};

let network: Network;
let service: Service;
let client: Client;
let folder: string;
let guest: Guest;
/** A server of this host at its own private address. */
let own: Server;

const settingsFile = () => path.join(folder, "guest.json");
async function writeSettings(settings: object): Promise<void> {
  await writeFile(`${settingsFile()}.new`, JSON.stringify(settings));
  await rename(`${settingsFile()}.new`, settingsFile());
}

async function startGuest(request: object = {}): Promise<Guest> {
  const { session_id } = await client.sessions.create(request);
  await client.sessions.waitUntilLive(session_id);
  const made = new Guest(client, session_id);
  await made.equip(network.world.ca);
  return made;
}

async function allow(mode: "allow" | "deny", entries: string[] = []): Promise<void> {
  const policy = { mode, allow: entries };
  const { status, body } = await askAt(service.facts, `/v1/sessions/${guest.id}/egress`, { body: policy });
  expect([status, body]).toMatchObject([200, { mode }]);
}

beforeAll(async () => {
  // The world comes first: the service reads this host's addresses at its start.
  network = await startNetwork();
  await network.world.say(ZONE);
  fillMirror(network.world, MIRROR);
  own = createServer((socket) => socket.on("error", () => {}).pipe(socket));
  await new Promise<void>((resolve) => void own.listen(PORT, LINK.host, resolve));
  folder = await mkdtemp(path.join(tmpdir(), "viv-private-"));
  await writeSettings(SETTINGS);
  const env = {
    VIV_RESOLVERS: PUBLIC.resolver,
    VIV_PRIVATE_OPEN: OPEN,
    VIV_GUEST_SETTINGS: settingsFile(),
  };
  service = await startService({ env });
  client = new Client({ url: service.facts.url, apiKey: service.facts.apiKey, retries: 0 });
  guest = await startGuest();
});
afterAll(async () => {
  if (guest) await client.sessions.delete(guest.id).catch(() => {});
  await service?.stop();
  own?.close();
  if (folder) await rm(folder, { recursive: true });
  await network?.close();
});
beforeEach(async () => {
  await network.world.untilQuiet();
  await network.world.forget();
});

const tcp = (host: string, port = PORT): Probe => ({ op: "tcp", host, port, chunks: [hex("hello")] });
const udp = (host: string, port = PORT): Probe => ({ op: "udp", host, port, chunks: [hex("hello")] });
const page = (host: string): Probe => ({ op: "get", url: `http://${host}:${PORT}/` });
const dns = (name: string): Probe => ({ op: "dns", name });
/** Private and other closed addresses where packets arrived. */
const reached = () =>
  network.world.namespace
    .countedPorts()
    .map(({ address, protocol, port }) => `${protocol} ${address}:${port}`)
    .filter((flow) => !flow.includes(PUBLIC.resolver))
    .toSorted();

describe("a run with dependencies", () => {
  const programs = [
    ["python", "import greeting; print(greeting.text)"],
    ["bun", 'import greeting from "greeting"; console.log(greeting)'],
    // npm needs minutes on an emulated processor.
    ["node", 'console.log(require("greeting"))'],
  ] as const;
  test.each(programs.slice(0, size({ ci: 2, full: 3 })))(
    "of %s installs them from the mirror",
    async (language, code) => {
      const { status, body } = await askAt(service.facts, "/v1/sessions/exec", {
        body: { language, code, dependencies: ["greeting"], timeout_ms: RUN_MS },
      });
      expect([status, body]).toMatchObject([200, { exit_code: 0, phase: "done" }]);
      expect(body.stdout).toContain(GREETING);
      expect(reached()).toEqual([`tcp ${NEVER.ten}:${PORT}`]);
    },
  );

  test("finds no mirror where the operator opened none", async () => {
    const body = {
      language: "python",
      code: "print('never')",
      dependencies: ["greeting"],
      timeout_ms: RUN_MS,
    };
    const answer = await network.ask("/v1/sessions/exec", { body });
    expect([answer.status, answer.body.phase]).toEqual([200, "install"]);
    expect(answer.body.exit_code).not.toBe(0);
    expect(reached()).toEqual([]);
  });
});

/** An address of each closed range that a guest's own kernel sends packets to. */
const CLOSED = NEVER_RANGES.filter((range) => !/^(0|127|224)\./.test(range)).map((range) => {
  const [address = "", bits] = range.split("/");
  return bits === "32" ? address : address.replace(/\d+$/, "9");
});

describe("what is open", () => {
  test("is reached by name and by address, over TCP, on the named ports, which the egress log shows", async () => {
    const visitor = await startGuest();
    const outcomes = await visitor.probe(page(MIRROR.name), page(NEVER.ten), page(LINK.world));
    for (const { got } of outcomes) expect(got).toContain("hello from");
    expect(reached()).toEqual([`tcp ${NEVER.ten}:${PORT}`, `tcp ${LINK.world}:${PORT}`].toSorted());
    // Ends its flows: the kernel may keep one that was closed for a minute, and its line is written at its end.
    await client.sessions.delete(visitor.id);
    const log = `/v1/sessions/${visitor.id}/egress-log?decision=allowed&limit=100`;
    await eventually(async () => {
      const { body } = await askAt(service.facts, log);
      expect(body.entries).toEqual(
        expect.arrayContaining([
          expect.objectContaining({ kind: "tcp", address: NEVER.ten, port: PORT, private: true }),
          expect.objectContaining({ kind: "dns", host: MIRROR.name, address: NEVER.ten, private: true }),
        ]),
      );
    });
  });

  test("is all that is: nothing arrives at any other private address, port or protocol", async () => {
    const closed = [
      ...CLOSED.map((address) => tcp(address)),
      ...[NEVER.oneNineTwo, NEVER.oneSevenTwo, NEVER.metadata, NEVER.otherMetadata].map((host) => tcp(host)),
      ...[22, 80, 8443, 9000].map((port) => tcp(NEVER.ten, port)),
      ...["10.66.0.11", "10.67.0.10"].map((host) => tcp(host)),
      ...["10.220.0.2", "10.220.0.3"].map((host) => tcp(host)),
    ];
    const [outcomes, [question, mixed, echoed, ping, atHost]] = [
      await guest.probe(...closed),
      await guest.probe(
        dns("inner.example.com"),
        dns("mixed.example.com"),
        udp(NEVER.ten, 9000),
        { op: "ping", host: NEVER.ten },
        tcp(LINK.host),
      ),
    ];
    expect(outcomes.map(({ error }, index) => [closed[index], error])).toEqual(
      closed.map((probe) => [probe, "ECONNREFUSED"]),
    );
    expect([question?.rcode, mixed?.rcode]).toEqual([3, 3]);
    for (const outcome of [echoed, ping, atHost]) expect(outcome?.got ?? "").toBe("");
    expect(reached()).toEqual([]);
    expect(network.world.namespace.counted().filter(({ address }) => address !== PUBLIC.resolver)).toEqual(
      [],
    );
  });

  test("is decided by the session's policy in mode deny", async () => {
    await allow("deny");
    const nothing = await guest.probe(dns(MIRROR.name), tcp(NEVER.ten), tcp(NEVER.ten, 443));
    expect(nothing[0]?.rcode).toBe(5);
    expect(nothing[1]?.error).toBe("ECONNREFUSED");
    expect(nothing[2]?.got ?? "").toBe("");
    expect(reached()).toEqual([]);
    await allow("deny", [`${MIRROR.name}:${PORT}`, MIRROR.name]);
    const [byName, byTls, other] = await guest.probe(
      page(MIRROR.name),
      { op: "tls", host: NEVER.ten, port: 443, name: MIRROR.name },
      tcp(NEVER.ten, 9000),
    );
    expect(byName?.got).toContain("hello from");
    expect(byTls?.got).toContain("hello from");
    expect(other?.error).toBe("ECONNREFUSED");
    await allow("deny", [`${NEVER.ten}:${PORT}`]);
    const [byAddress, still] = await guest.probe(page(NEVER.ten), dns(MIRROR.name));
    expect([byAddress?.got, still?.rcode]).toEqual([expect.stringContaining("hello from"), 5]);
    const refused = await askAt(service.facts, `/v1/sessions/${guest.id}/egress`, {
      body: { mode: "deny", allow: [`${NEVER.ten}:22`] },
    });
    expect([refused.status, refused.body.error]).toEqual([
      400,
      expect.stringContaining("did not open port 22"),
    ]);
    await allow("allow");
  });

  test("is closed to sessions of a service that opens nothing", async () => {
    const other = await network.guest();
    const [direct, named, tls] = await other.probe(tcp(NEVER.ten), dns(MIRROR.name), tcp(NEVER.ten, 443));
    expect([direct?.error, named?.rcode, tls?.error]).toEqual(["ECONNREFUSED", 3, "ECONNREFUSED"]);
    expect(reached()).toEqual([]);
    const answer = await network.ask(`/v1/sessions/${other.id}/egress`, {
      body: { mode: "deny", allow: [`${NEVER.ten}:${PORT}`] },
    });
    expect(answer.status).toBe(400);
    await network.client.sessions.delete(other.id);
  });
});

describe("settings for guests", () => {
  const INDEX = "printenv PIP_INDEX_URL";

  test("are in every program's environment, also of root's, and in apt's configuration", async () => {
    expect((await guest.run(INDEX)).trim()).toBe(SETTINGS.variables.PIP_INDEX_URL);
    expect((await guest.run(`sudo ${INDEX}`)).trim()).toBe(SETTINGS.variables.PIP_INDEX_URL);
    expect((await guest.run("printenv NO_PROXY")).trim()).toBe(MIRROR.name);
    const wanted = (await guest.run("sudo apt-get --print-uris update")).trim().split("\n");
    for (const line of wanted) expect(line).toContain(`'${URL_OF_MIRROR}/debian/`);
  });

  test("are those of the file as it is when a session is made; a session's own variables win", async () => {
    await writeSettings({ variables: { PIP_INDEX_URL: "http://moved.example.com/" } });
    const { checkpoint_id } = await client.checkpoints.create(guest.id);
    const [started, next] = await Promise.all([
      client.checkpoints.start(checkpoint_id),
      client.sessions.create({ env: { PIP_INDEX_URL: "http://mine.example.com/" } }),
    ]);
    await client.sessions.waitUntilLive(started.session_id);
    await client.sessions.waitUntilLive(next.session_id);
    const valueIn = (id: string) => new Guest(client, id).run(`${INDEX}; printenv NO_PROXY || true`);
    expect(await valueIn(started.session_id)).toBe("http://moved.example.com/\n");
    expect(await valueIn(next.session_id)).toBe("http://mine.example.com/\n");
    const wanted = await new Guest(client, started.session_id).run("sudo apt-get --print-uris update");
    expect(wanted).toContain("deb.debian.org");
    await client.sessions.pause(guest.id);
    expect(await valueIn(guest.id)).toBe(`${SETTINGS.variables.PIP_INDEX_URL}\n${MIRROR.name}\n`);
    await Promise.all([started, next].map(({ session_id }) => client.sessions.delete(session_id)));
    await client.checkpoints.delete(checkpoint_id);
  });

  test("stay in force when the file is broken, which is no reason to refuse a session", async () => {
    await writeSettings({ variables: { PIP_INDEX_URL: "http://good.example.com/" } });
    const first = await startGuest();
    await writeSettings({ variables: { "NO NAME": "x" } });
    const second = await startGuest();
    for (const one of [first, second]) {
      expect((await one.run(INDEX)).trim()).toBe("http://good.example.com/");
      await client.sessions.delete(one.id);
    }
  });
});
