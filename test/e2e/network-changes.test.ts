/**
 * Policies that change while bytes flow (N-13) and that survive operations on their session (N-14), the daily cap
 * (N-16) and guests that use too much (N-17), on real machines and by the world's counters.
 */
import { readFileSync } from "node:fs";
import { sleep } from "@vivarium/kit/clock";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, afterEach, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { servicePid } from "../support/service.ts";
import { PORTS, PUBLIC } from "../support/world/addresses.ts";
import { CA_FILE, Guest, hex, type Probe } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";

const MIB = 1024 * 1024;
/** The kernel sees segments of one flow in bundles, and cuts a whole one. */
const BUNDLE = 64 * 1024;
const KEPT = "example.com";
const REVOKED = "www.example.com";
const GRANTED = "later.example.com";
const ZONE = {
  [KEPT]: { a: [PUBLIC.allowed] },
  [REVOKED]: { a: [PUBLIC.second] },
  [GRANTED]: { a: [PUBLIC.moved] },
};

let network: Network;
beforeAll(async () => {
  network = await startNetwork();
  await network.world.say(ZONE);
});
afterAll(() => network?.close());
afterEach(async () => {
  const { sessions } = await network.client.sessions.list({ limit: 100 });
  for (const { session_id } of sessions) await network.client.sessions.delete(session_id).catch(() => {});
  await network.world.hangUp();
});

const countedAt = (address: string) =>
  network.world.namespace.counted().filter((one) => one.address === address);
const packetsAt = (address: string) => countedAt(address).reduce((sum, { packets }) => sum + packets, 0);
const bytesAt = (address: string) => countedAt(address).reduce((sum, { bytes }) => sum + bytes, 0);
const page = (name: string): Probe => ({
  ...{ op: "tcp", host: PUBLIC.denied, port: 80 },
  chunks: [hex(`GET / HTTP/1.1\r\nHost: ${name}\r\nConnection: close\r\n\r\n`)],
});
const tcp = (host: string, port = 9000): Probe => ({ op: "tcp", host, port, chunks: [hex("hello")] });

const upload = (guest: Guest, bytes: number) =>
  guest.tries(`head -c ${bytes} /dev/zero | timeout 100 python3 -c '
import socket, sys
peer = socket.create_connection(("${PUBLIC.bulk}", ${PORTS.sink}))
peer.settimeout(15)
while chunk := sys.stdin.buffer.read(65536): peer.sendall(chunk)'`);
const today = async (guest: Guest) =>
  Number((await network.ask(`/v1/sessions/${guest.id}/egress-cap`)).body.today_bytes);

describe("a change of policy", () => {
  const openAt = async (address: string) =>
    (await network.world.open()).filter(({ host }) => host === address);

  test("kills what it revokes and leaves what it still allows, by name and by address", async () => {
    const before = [KEPT, REVOKED, `${PUBLIC.mail}:9002`, `${PUBLIC.bulk}:9002`];
    const guest = await network.guest({ egress: { mode: "deny", allow: before } });
    const get = (name: string) => `curl -sN --cacert ${CA_FILE} https://${name}/stream`;
    await guest.start("kept", `exec ${get(KEPT)} > /workspace/kept`);
    await guest.start("revoked", `exec ${get(REVOKED)} > /workspace/revoked`);
    const pull = (host: string) => `exec python3 -c '
import socket
peer = socket.create_connection(("${host}", ${PORTS.source}))
while peer.recv(65536): pass'`;
    await guest.start("pull-kept", pull(PUBLIC.mail));
    await guest.start("pull-revoked", pull(PUBLIC.bulk));
    // Silent after its handshake.
    await guest.start(
      "idle",
      `exec python3 -c '
import socket, ssl, time
context = ssl.create_default_context(cafile="${CA_FILE}")
peer = context.wrap_socket(socket.create_connection(("${PUBLIC.denied}", 443)), server_hostname="${REVOKED}")
print(peer.recv(1))'`,
    );
    for (const [address, count] of [
      [PUBLIC.allowed, 1],
      [PUBLIC.second, 2],
      [PUBLIC.mail, 1],
      [PUBLIC.bulk, 1],
    ] as const)
      await eventually(async () => expect(await openAt(address)).toHaveLength(count), 60_000);
    await network.allow(guest, "deny", [KEPT, GRANTED, `${PUBLIC.mail}:9002`]);
    await Promise.all([
      sleep(1_000),
      eventually(async () => expect(await openAt(PUBLIC.second)).toEqual([]), 1_000),
    ]);
    expect(await openAt(PUBLIC.allowed)).toHaveLength(1);
    await network.world.forget();
    expect((await guest.one(page(GRANTED))).got).toContain(`hello from ${GRANTED}`);
    expect((await guest.one(page(REVOKED))).got).toContain("403");
    const size = async () => Number(await guest.run("stat -c %s /workspace/kept"));
    const earlier = await size();
    await eventually(async () => expect(await size()).toBeGreaterThan(earlier));
    expect(packetsAt(PUBLIC.second)).toBe(0);
    expect(packetsAt(PUBLIC.bulk)).toBe(0);
    expect(packetsAt(PUBLIC.mail)).toBeGreaterThan(0);
  });

  test("from allow to deny kills what has no entry, and back opens it again", async () => {
    const guest = await network.guest();
    await guest.start(
      "talk",
      `exec python3 -c '
import socket, time
peer = socket.create_connection(("${PUBLIC.bulk}", 9000))
while True: peer.sendall(b"x"); peer.recv(1); time.sleep(0.05)'`,
    );
    await eventually(() => expect(packetsAt(PUBLIC.bulk)).toBeGreaterThan(20), 60_000);
    await network.allow(guest, "deny", [KEPT]);
    // Packets sent before the answer may still be on their way through this host.
    await sleep(200);
    await network.world.forget();
    await sleep(2_000);
    expect(network.world.namespace.counted()).toEqual([]);
    expect((await guest.one(tcp(PUBLIC.bulk))).error).toBe("ECONNREFUSED");
    await network.allow(guest, "allow");
    expect((await guest.one(tcp(PUBLIC.bulk))).got).toBe("hello");
  });
});

describe("a policy outlives", () => {
  /** The allowed name is reached, the other one and bare addresses are not. */
  async function holds(guest: Guest): Promise<void> {
    await network.world.forget();
    const [kept, revoked, bare] = await guest.probe(page(KEPT), page(REVOKED), tcp(PUBLIC.bulk));
    expect(kept?.got).toContain(`hello from ${KEPT}`);
    expect(revoked?.got).toContain("403");
    expect(bare?.error).toBe("ECONNREFUSED");
    expect([packetsAt(PUBLIC.second), packetsAt(PUBLIC.bulk), packetsAt(PUBLIC.denied)]).toEqual([0, 0, 0]);
  }

  test("pause, fork, checkpoint, restore and restarts", { timeout: 8 * 60_000 * SLOWNESS }, async () => {
    const { client, facts } = network;
    const guest = await network.guest({ egress: { mode: "deny", allow: [KEPT] } });
    const of = (id: string) => new Guest(client, id);
    await holds(guest);
    await client.sessions.pause(guest.id);
    await client.sessions.resume(guest.id);
    await holds(guest);
    const { children } = await client.sessions.fork(guest.id);
    const child = of(String(children[0]));
    await holds(child);
    await client.sessions.delete(child.id);
    const { checkpoint_id } = await client.checkpoints.create(guest.id);
    const { session_id } = await client.checkpoints.start(checkpoint_id);
    await holds(of(session_id));
    expect((await network.ask(`/v1/sessions/${session_id}/egress`)).body).toMatchObject({
      mode: "deny",
      allow: [KEPT],
    });
    await client.sessions.delete(session_id);
    await client.sessions.restore(guest.id, checkpoint_id);
    await holds(guest);
    // The death of the gateway is covered in network-kills.test.ts.
    for (const process of ["node", "control"] as const) {
      global.process.kill(servicePid(facts, process), "SIGKILL");
      await eventually(() => holds(guest), 60_000, 500);
    }
  });

  test("a pause, also when it changed during the pause: in force before the guest runs again", async () => {
    const guest = await network.guest();
    await guest.start(
      "knock",
      `exec python3 -c '
import socket, time
peer = socket.socket(type=socket.SOCK_DGRAM)
while True:
    try: peer.sendto(b"knock", ("${PUBLIC.denied}", 9000))
    except OSError: pass
    time.sleep(0.001)'`,
    );
    await eventually(() => expect(packetsAt(PUBLIC.denied)).toBeGreaterThan(100), 60_000);
    await network.client.sessions.pause(guest.id);
    await network.allow(guest, "deny", [KEPT]);
    expect((await network.client.sessions.get(guest.id)).state).toBe("paused");
    await network.world.forget();
    await network.client.sessions.resume(guest.id);
    expect((await guest.one(page(KEPT))).got).toContain(`hello from ${KEPT}`);
    expect(packetsAt(PUBLIC.denied)).toBe(0);
    await network.client.sessions.pause(guest.id);
    await network.allow(guest, "allow");
    await network.client.sessions.resume(guest.id);
    await eventually(() => expect(packetsAt(PUBLIC.denied)).toBeGreaterThan(100), 60_000);
  });
});

describe("the daily cap", () => {
  const CAP = 10 * MIB;
  const setCap = async (guest: Guest, bytes: number) => {
    const answer = await network.ask(`/v1/sessions/${guest.id}`, {
      method: "PATCH",
      body: { egress_cap_bytes: bytes },
    });
    expect(answer.status).toBe(200);
  };

  test("cuts after exactly so many bytes, for every protocol, and nothing but a new day or cap lifts it", {
    timeout: 6 * 60_000 * SLOWNESS,
  }, async () => {
    const guest = await network.guest({ egress_cap_bytes: CAP });
    await network.world.forget();
    const before = await today(guest);
    await upload(guest, 3 * MIB);
    expect(bytesAt(PUBLIC.bulk)).toBeGreaterThan(3 * MIB);
    // The bytes that the kernel counted at the exit are the bytes that arrived.
    await eventually(async () => expect((await today(guest)) - before).toBe(bytesAt(PUBLIC.bulk)));

    await upload(guest, 20 * MIB);
    await eventually(async () => expect(await today(guest)).toBeGreaterThan(CAP - BUNDLE));
    expect(await today(guest)).toBeLessThanOrEqual(CAP);
    expect(bytesAt(PUBLIC.bulk)).toBe((await today(guest)) - before);
    expect((await network.client.sessions.get(guest.id)).state).toBe("live");

    const silent = async (one: Guest) => {
      await network.world.forget();
      await one.probe(
        tcp(PUBLIC.bulk),
        { op: "udp", host: PUBLIC.bulk, port: 9000, chunks: [hex("x")] },
        { op: "ping", host: PUBLIC.bulk },
        { op: "dns", name: KEPT, wait: 2 },
      );
      expect(network.world.namespace.counted()).toEqual([]);
    };
    await silent(guest);
    await network.client.sessions.pause(guest.id);
    await network.client.sessions.resume(guest.id);
    await silent(guest);
    expect(await today(guest)).toBeGreaterThan(CAP - BUNDLE);

    await setCap(guest, 2 * CAP);
    await eventually(async () => expect((await guest.one(tcp(PUBLIC.bulk))).got).toBe("hello"));
    await setCap(guest, MIB);
    await eventually(() => silent(guest));
    await setCap(guest, 0);
    await eventually(async () => expect((await guest.one(tcp(PUBLIC.bulk))).got).toBe("hello"));
  });

  test("counts what goes by name like everything else", async () => {
    const guest = await network.guest({ egress: { mode: "deny", allow: [KEPT] }, egress_cap_bytes: CAP });
    const before = await today(guest);
    const send = `head -c ${3 * MIB} /dev/zero | curl -s --cacert ${CA_FILE} --data-binary @- https://${KEPT}/upload`;
    expect(JSON.parse(await guest.run(send))).toEqual({ bytes: 3 * MIB });
    await eventually(async () => expect((await today(guest)) - before).toBeGreaterThan(3 * MIB));
    expect((await today(guest)) - before).toBeLessThan(4 * MIB);
  });
});

describe("a guest that wants too much", () => {
  const hostFlows = () => Number(readFileSync("/proc/sys/net/netfilter/nf_conntrack_count", "utf8"));
  const hostLimit = () => Number(readFileSync("/proc/sys/net/netfilter/nf_conntrack_max", "utf8"));

  test("gets so many connections, and neighbours are served as before", {
    timeout: 6 * 60_000 * SLOWNESS,
  }, async () => {
    const greedy = await network.guest();
    const neighbour = await network.guest({ egress: { mode: "deny", allow: [KEPT] } });
    await network.world.forget();
    const flood = `
import resource, socket, time
resource.setrlimit(resource.RLIMIT_NOFILE, (8192, 8192))
held = []
for turn in range(3000):
    peer = socket.socket(); peer.setblocking(False)
    try: peer.connect(("${PUBLIC.bulk}", 9000))
    except BlockingIOError: pass
    held.append(peer)
sender = socket.socket(type=socket.SOCK_DGRAM)
for turn in range(6000):
    try: sender.sendto(b"x", ("${PUBLIC.bulk}", 1024 + turn))
    except OSError: pass
time.sleep(10)`;
    const flooding = greedy.tries(`sudo python3 -c '${flood}'`);
    await eventually(async () => expect((await network.world.open()).length).toBeGreaterThan(500), 60_000);
    for (let turn = 0; turn < 3; turn++) {
      expect((await neighbour.one(page(KEPT))).got).toContain(`hello from ${KEPT}`);
      expect(hostFlows()).toBeLessThan(hostLimit() / 2);
    }
    const held = (await network.world.open()).filter(({ host }) => host === PUBLIC.bulk);
    expect(held.length).toBeLessThanOrEqual(2_048);
    await flooding;
    const ports = network.world.namespace.countedPorts().filter(({ protocol }) => protocol === "udp");
    expect(ports.length).toBeLessThan(2_048);
    await eventually(async () => expect((await greedy.one(tcp(PUBLIC.bulk))).got).toBe("hello"), 60_000);
  });
});

describe("the cap of an organisation", () => {
  test("pauses its sessions once it is reached, and a higher one lets them run again", {
    timeout: 6 * 60_000 * SLOWNESS,
  }, async () => {
    const setCap = async (bytes: number | null) =>
      (await network.ask("/v1/org/egress-cap", { method: "PUT", body: { cap_bytes: bytes } })).status;
    const says = async (guest: Guest) => (await guest.one(tcp(PUBLIC.bulk))).got;
    const { body } = await network.ask("/v1/org/egress-cap");
    const guest = await network.guest({ idle_timeout_ms: 3_600_000 });
    onTestFinished(async () => void (await setCap(null)));
    expect(await setCap(Number(body.today_bytes) + 4 * MIB)).toBe(200);
    // The pause may come while the command runs.
    await upload(guest, 6 * MIB).catch((error) => expect(error).toMatchObject({ status: 409 }));
    await eventually(
      async () => expect((await network.client.sessions.get(guest.id)).state).toBe("paused"),
      60_000,
    );
    await expect(says(guest)).rejects.toMatchObject({ status: 409, code: "egress_capped" });
    expect(await setCap(null)).toBe(200);
    await eventually(async () => expect(await says(guest)).toBe("hello"), 60_000);
  });
});
