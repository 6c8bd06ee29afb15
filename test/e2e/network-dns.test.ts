/**
 * Names on real machines: DN-01, DN-05, DN-06, N-18, by the questions that name servers received. The answer to each
 * question is tested in the gateway (packages/gateway/src/dns).
 */
import { sleep } from "@vivarium/kit/clock";
import { size } from "@vivarium/kit/test-support/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { NEVER, PUBLIC } from "../support/world/addresses.ts";
import { type Guest, hex, type Outcome, type Probe } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";
import type { Zone } from "../support/world/zone.ts";

/** An even number: half of the answers are private. */
const TURNS = size({ ci: 60, full: 1_000 });
/** The shortest validity of an answer, with its extension, is longer than most runs wait. */
const IS_FULL = size({ ci: 0, full: 1 }) === 1;
const FLOOD_S = size({ ci: 5, full: 10 });
const RCODE = { none: 0, noSuchName: 3, refused: 5 };
const ALLOWED = ["example.com", "*.example.com", "moves.example.org:9000"];
const ZONE: Zone = {
  "example.com": { a: [PUBLIC.allowed] },
  "mixed.example.com": { a: [PUBLIC.allowed, NEVER.oneNineTwo] },
  "alias.example.com": { cname: "far.example.net" },
  "far.example.net": { a: [NEVER.ten] },
  "*.crowd.example.com": { a: [PUBLIC.allowed] },
  "*.flips.example.com": [
    { a: [PUBLIC.allowed], ttl: 0 },
    { a: [NEVER.ten], ttl: 0 },
  ],
  "metadata.google.internal": { a: [PUBLIC.allowed] },
  "moves.example.org": { a: [PUBLIC.bulk], ttl: 1 },
};

let network: Network;
let nothing: Guest;
let names: Guest;
let open: Guest;

beforeAll(async () => {
  network = await startNetwork();
  await network.world.say(ZONE);
  [nothing, names, open] = await Promise.all([
    network.guest({ egress: { mode: "deny", allow: [] } }),
    network.guest({ egress: { mode: "deny", allow: ALLOWED } }),
    network.guest(),
  ]);
});
afterAll(() => network?.close());

async function ask(guest: Guest, name: string, more: { tcp?: boolean } = {}): Promise<Outcome> {
  await network.world.forget();
  return await guest.one({ op: "dns", name, ...more });
}

/** Every question that name servers were asked since. */
async function questions(): Promise<string[]> {
  const events = await network.world.take();
  return events.flatMap((event) => (event.kind === "dns" ? [event.name] : []));
}

/** Each name once: a question is asked again when its answer is late. */
const asked = async () => [...new Set(await questions())];

const packetsTo = (address: string) =>
  network.world.namespace
    .counted()
    .filter((one) => one.address === address)
    .reduce((sum, { packets }) => sum + packets, 0);

test("a name of the policy is found by asking our name server, over UDP and TCP; others without a question", async () => {
  for (const tcp of [false, true]) {
    expect(await ask(names, "example.com", { tcp })).toMatchObject({
      rcode: RCODE.none,
      a: [PUBLIC.allowed],
    });
    for (const [guest, name] of [
      [names, "www.example.net"],
      [nothing, "example.com"],
    ] as const) {
      expect(await ask(guest, name, { tcp })).toMatchObject({ rcode: RCODE.refused, a: [] });
      expect(await asked()).toEqual([]);
    }
  }
});

test("an answer with a private address has no address, in both modes", async () => {
  for (const guest of [names, open])
    for (const name of ["mixed.example.com", "alias.example.com"])
      expect(await ask(guest, name)).toMatchObject({ rcode: RCODE.noSuchName, a: [] });
  expect(await ask(open, "metadata.google.internal")).toMatchObject({ rcode: RCODE.noSuchName });
  expect(await asked()).toEqual([]);
});

test("the questions of one session are invisible to another", async () => {
  expect((await ask(names, "one.crowd.example.com")).a).toEqual([PUBLIC.allowed]);
  expect(await asked()).toEqual(["one.crowd.example.com"]);
  expect(await ask(nothing, "one.crowd.example.com")).toMatchObject({ rcode: RCODE.refused });
  expect(await asked()).toEqual([]);
  expect((await ask(open, "one.crowd.example.com")).a).toEqual([PUBLIC.allowed]);
  expect(await asked()).toEqual(["one.crowd.example.com"]);
});

test("a flood of questions of one guest is a trickle here, and the others are answered", async () => {
  await network.world.forget();
  const flood = `
import socket, struct, time
peer = socket.socket(type=socket.SOCK_DGRAM); peer.connect(("10.200.0.1", 53)); peer.setblocking(False)
end, sent = time.monotonic() + ${FLOOD_S}, 0
while time.monotonic() < end and sent < 50000:
    label = f"f{sent}".encode()
    tail = bytes([len(label)]) + label + b"\\x05crowd\\x07example\\x03com\\0\\0\\1\\0\\1"
    try: peer.send(struct.pack(">HHHHHH", sent & 65535, 256, 1, 0, 0, 0) + tail); sent += 1
    except OSError: pass
print(sent)`;
  const flooding = names.run(`python3 -c '${flood}'`);
  const others = Array.from({ length: 8 }, (_, n): Probe => ({ op: "dns", name: `n${n}.crowd.example.com` }));
  const answers = await open.probe(...others);
  const sent = Number(await flooding);
  expect(answers.map(({ a }) => a)).toEqual(others.map(() => [PUBLIC.allowed]));
  const arrived = (await asked()).filter((name) => name.startsWith("f")).length;
  expect(sent).toBeGreaterThan(2_000);
  expect(arrived).toBeGreaterThan(50);
  // 200 at once and 50 a second, for as long as the flood lasted, and some more for a busy host.
  expect(arrived).toBeLessThan(700 + 50 * FLOOD_S);
});

test(`${TURNS} answers that turn private in between lead to no private host`, {
  timeout: 300_000 * SLOWNESS,
}, async () => {
  await network.world.forget();
  const visit = `
import socket
counts = {}
for turn in range(${TURNS}):
    peer = socket.create_connection(("${PUBLIC.denied}", 80), 10)
    peer.sendall(f"GET / HTTP/1.1\\r\\nHost: t{turn}.flips.example.com\\r\\nConnection: close\\r\\n\\r\\n".encode())
    status = peer.recv(4096)[9:12].decode()
    counts[status] = counts.get(status, 0) + 1
    peer.close()
print(counts.get("200", 0), counts.get("403", 0))`;
  const counts = (await names.run(`python3 -c '${visit}'`, 280_000)).split(" ").map(Number);
  const [reached = 0, refused = 0] = counts;
  expect(reached + refused).toBe(TURNS);
  // Each visit asks once, and again only when its answer was late; then the rotation of the answers shifts by one.
  const late = (await questions()).length - TURNS;
  expect(late).toBeLessThan(TURNS / 10);
  expect(Math.abs(reached - refused)).toBeLessThanOrEqual(2 * late);
  expect(packetsTo(NEVER.ten)).toBe(0);
  expect(packetsTo(PUBLIC.denied)).toBe(0);
  expect(packetsTo(PUBLIC.allowed)).toBeGreaterThan(reached * 4);
});

test.runIf(IS_FULL)("an address that a name has left is closed soon after, to new connections", async () => {
  const tcp = (host: string): Probe => ({ op: "tcp", host, port: 9000, chunks: [hex("hello")] });
  expect((await ask(names, "moves.example.org")).a).toEqual([PUBLIC.bulk]);
  await names.start(
    "held",
    `exec python3 -c 'import socket, time
peer = socket.create_connection(("${PUBLIC.bulk}", 9000))
while True: peer.sendall(b"x"); peer.recv(1); time.sleep(1)'`,
  );
  await eventually(async () => expect(await network.world.open()).toHaveLength(1));
  await network.world.say({ ...ZONE, "moves.example.org": { a: [PUBLIC.moved], ttl: 1 } });
  expect((await names.one(tcp(PUBLIC.bulk))).got).toBe("hello");
  // 30 s is the shortest validity of an answer; 60 s are added.
  await sleep(95_000);
  expect((await names.one(tcp(PUBLIC.bulk))).error).toBe("ECONNREFUSED");
  expect((await ask(names, "moves.example.org")).a).toEqual([PUBLIC.moved]);
  expect((await names.one(tcp(PUBLIC.moved))).got).toBe("hello");
  const before = await network.world.open();
  await eventually(async () => {
    const [now] = await network.world.open();
    expect(now?.bytes).toBeGreaterThan(before[0]?.bytes ?? 0);
  });
});
