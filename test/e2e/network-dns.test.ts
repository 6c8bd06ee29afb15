/** Names on real machines: security.md C5 row by row, DN-01, DN-02, DN-04 to DN-07, N-18, by what name servers saw. */
import { sleep } from "@vivarium/kit/clock";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { NEVER, PUBLIC } from "../support/world/addresses.ts";
import { type Guest, hex, type Outcome, type Probe } from "../support/world/guest.ts";
import { type Network, startNetwork } from "../support/world/network.ts";
import type { NameAnswer, Zone } from "../support/world/zone.ts";

/** An even number: half of the answers are private. */
const TURNS = 1_000;
const RCODE = { none: 0, failed: 2, noSuchName: 3, refused: 5 };
const TYPE = { A: 1, NULL: 10, MX: 15, TXT: 16, AAAA: 28, SVCB: 64, HTTPS: 65, ANY: 255 };
const SERVICE = Buffer.from([0, 1, 0, 0, 1, 0, 3, 2, 0x68, 0x32]).toString("base64");
const ALLOWED = ["example.com", "*.example.com", "moves.example.org:9000"];
/** What nothing may be told of: in what a name's answer hides an address that is nobody's to reach. */
const HIDDEN: Record<string, NameAnswer> = {
  "private.example.com": { a: [NEVER.ten] },
  "mixed.example.com": { a: [PUBLIC.allowed, NEVER.oneNineTwo] },
  "mixed-first.example.com": { a: [NEVER.oneSevenTwo, PUBLIC.allowed] },
  "alias.example.com": { cname: "far.example.net" },
  "meta.example.com": { a: [NEVER.metadata] },
  "wire.example.com": { a: [NEVER.wireServer] },
  "shared.example.com": { a: [NEVER.otherMetadata] },
  "zero.example.com": { a: ["0.0.0.0"] },
  "all.example.com": { a: ["255.255.255.255"] },
  "loop.example.com": { a: ["127.0.0.1"] },
  "self.example.com": { a: ["10.200.0.1"] },
};
const ZONE: Zone = {
  ...HIDDEN,
  "far.example.net": { a: [NEVER.ten] },
  "example.com": {
    a: [PUBLIC.allowed],
    txt: "words",
    others: [TYPE.SVCB, TYPE.HTTPS].map((type) => ({ type, data: SERVICE })),
  },
  "many.example.com": { a: [1, 2, 3, 4, 5, 6, 7, 8].map((last) => `45.90.29.${last}`) },
  "good-alias.example.com": { cname: "end.example.net" },
  "end.example.net": { a: [PUBLIC.second], ttl: 40 },
  "brief.example.com": { a: [PUBLIC.allowed], ttl: 0 },
  "endless.example.com": { a: [PUBLIC.allowed], ttl: 2 ** 31 },
  "silent.example.com": { isSilent: true },
  "failing.example.com": { rcode: 2 },
  "slow.example.com": { a: [PUBLIC.allowed], delayMs: 9_000 },
  "lied-id.example.com": { a: [PUBLIC.allowed], lies: "id", lie: PUBLIC.denied },
  "lied-name.example.com": { a: [PUBLIC.allowed], lies: "question", lie: PUBLIC.denied },
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
  nothing = await network.guest({ egress: { mode: "deny", allow: [] } });
  names = await network.guest({ egress: { mode: "deny", allow: ALLOWED } });
  open = await network.guest();
});
afterAll(() => network?.close());

async function ask(
  guest: Guest,
  name: string,
  more: { type?: number; tcp?: boolean } = {},
): Promise<Outcome> {
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

describe("in mode deny", () => {
  test("a name of the policy has addresses, and nothing else", async () => {
    expect(await ask(names, "example.com")).toMatchObject({ rcode: RCODE.none, a: [PUBLIC.allowed] });
    expect(await asked()).toEqual(["example.com"]);
    for (const type of [TYPE.AAAA, TYPE.HTTPS, TYPE.SVCB, TYPE.TXT, TYPE.NULL, TYPE.MX, TYPE.ANY]) {
      const { rcode, types } = await ask(names, "example.com", { type });
      expect([type, rcode, types]).toEqual([type, RCODE.none, []]);
      expect([type, await asked()]).toEqual([type, []]);
    }
  });

  test("other names are refused without a question of ours, also over TCP", async () => {
    for (const name of ["www.example.net", "com", "example.com.example.net", "moves.example.com.org"]) {
      for (const tcp of [false, true]) {
        expect(await ask(names, name, { tcp })).toMatchObject({ rcode: RCODE.refused, a: [] });
        expect(await asked()).toEqual([]);
      }
    }
    expect(await ask(nothing, "example.com")).toMatchObject({ rcode: RCODE.refused });
    expect(await asked()).toEqual([]);
  });

  test("aliases are followed and answered under the name asked for, four addresses at most", async () => {
    const { a, types, ttls } = await ask(names, "good-alias.example.com");
    expect([a, types, ttls]).toEqual([[PUBLIC.second], [TYPE.A], [40]]);
    expect((await ask(names, "many.example.com")).a).toHaveLength(4);
  });

  test("the time of an answer is brought between half a minute and five", async () => {
    expect((await ask(names, "brief.example.com")).ttls).toEqual([30]);
    expect((await ask(names, "endless.example.com")).ttls).toEqual([300]);
  });
});

describe("in mode allow", () => {
  test("names are passed on, but not what hides names in TLS", async () => {
    expect(await ask(open, "example.com")).toMatchObject({ rcode: RCODE.none, a: [PUBLIC.allowed] });
    expect(await ask(open, "example.com", { type: TYPE.TXT })).toMatchObject({ types: [TYPE.TXT] });
    for (const type of [TYPE.AAAA, TYPE.HTTPS, TYPE.SVCB, TYPE.ANY])
      expect(await ask(open, "example.com", { type })).toMatchObject({ rcode: RCODE.none, types: [] });
    expect(await ask(open, "nobody.example.net")).toMatchObject({ rcode: RCODE.noSuchName });
  });
});

describe("in both modes", () => {
  test.each(Object.keys(HIDDEN))("%s leads nowhere", async (name) => {
    for (const guest of [names, open])
      expect(await ask(guest, name)).toMatchObject({ rcode: RCODE.noSuchName, a: [] });
  });

  test("a metadata service's name leads nowhere, whatever a name server would say", async () => {
    expect(await ask(open, "metadata.google.internal")).toMatchObject({ rcode: RCODE.noSuchName });
    expect(await asked()).toEqual([]);
  });

  test.each(["silent", "failing", "slow"])("a %s name server is told of in time", async (what) => {
    for (const guest of [names, open])
      expect(await ask(guest, `${what}.example.com`)).toMatchObject({ rcode: RCODE.failed });
  });

  test.each(["lied-id", "lied-name"])("false answers are not taken: %s", async (what) => {
    expect((await ask(names, `${what}.example.com`)).a).toEqual([PUBLIC.allowed]);
  });

  test("what one session asked says nothing to another", async () => {
    expect((await ask(names, "one.crowd.example.com")).a).toEqual([PUBLIC.allowed]);
    expect(await ask(nothing, "one.crowd.example.com")).toMatchObject({ rcode: RCODE.refused });
    expect(await asked()).toEqual([]);
    expect((await ask(open, "one.crowd.example.com")).a).toEqual([PUBLIC.allowed]);
    expect(await asked()).toEqual(["one.crowd.example.com"]);
  });
});

describe("messages that are none", () => {
  const header = (counts: number[]) => {
    const bytes = Buffer.alloc(12);
    bytes.writeUInt16BE(4711, 0);
    bytes.writeUInt16BE(0x0100, 2);
    counts.forEach((count, at) => {
      bytes.writeUInt16BE(count, 4 + 2 * at);
    });
    return bytes;
  };
  const question = Buffer.from("\x07example\x03com\0\0\x01\0\x01", "latin1");
  const toUs = (bytes: Buffer): Probe => ({
    ...{ op: "udp", host: "10.200.0.1", port: 53 },
    chunks: [bytes.toString("hex")],
  });
  const overTcp = (bytes: Buffer, length = bytes.length): Probe => ({
    ...{ op: "tcp", host: "10.200.0.1", port: 53, wait: 8 },
    chunks: [Buffer.concat([Buffer.from([length >> 8, length & 0xff]), bytes]).toString("hex")],
  });

  test.each<[string, Probe]>([
    ["no question", toUs(header([0, 0, 0, 0]))],
    ["two questions", toUs(Buffer.concat([header([2, 0, 0, 0]), question, question]))],
    ["65,535 questions", toUs(Buffer.concat([header([65_535, 0, 0, 0]), question]))],
    [
      "a name that is its own end",
      toUs(Buffer.concat([header([1, 0, 0, 0]), Buffer.from("c00c00010001", "hex")])),
    ],
    ["half a message", toUs(Buffer.concat([header([1, 0, 0, 0]), question.subarray(0, 6)]))],
    ["an answer", toUs(Buffer.concat([Buffer.from("126781800001000000000000", "hex"), question]))],
    ["a long datagram", toUs(Buffer.concat([header([1, 0, 0, 0]), question, Buffer.alloc(600)]))],
    ["one byte", toUs(Buffer.from("x"))],
  ])("%s over UDP gets no answer", async (_what, probe) => {
    await network.world.forget();
    expect((await names.one(probe)).error).toBe("TIMEOUT");
    expect(await asked()).toEqual([]);
    expect((await ask(names, "example.com")).a).toEqual([PUBLIC.allowed]);
  });

  test.each<[string, Probe]>([
    ["64 KiB", overTcp(Buffer.alloc(8_192), 65_535)],
    ["half a message", overTcp(Buffer.concat([header([1, 0, 0, 0]), question.subarray(0, 6)]), 29)],
    ["two questions", overTcp(Buffer.concat([header([2, 0, 0, 0]), question, question]))],
  ])("%s over TCP ends the connection", async (_what, probe) => {
    const { got, end, error } = await names.one(probe);
    expect([got ?? "", end === "open" || error === "TIMEOUT"]).toEqual(["", false]);
    expect((await ask(names, "example.com", { tcp: true })).a).toEqual([PUBLIC.allowed]);
  });
});

test("a flood of questions of one guest is a trickle here, and the others are answered", async () => {
  await network.world.forget();
  const flood = `
import socket, struct, time
peer = socket.socket(type=socket.SOCK_DGRAM); peer.connect(("10.200.0.1", 53)); peer.setblocking(False)
end, sent = time.monotonic() + 10, 0
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
  // 200 at once and 50 a second, for as long as it went on.
  expect(arrived).toBeLessThan(1_200);
});

test(`${TURNS} answers that turn private in between lead to no private host`, {
  timeout: 300_000,
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
  // Each visit asks once, and again only when its answer was late; then the turns of the answers shift by one.
  const late = (await questions()).length - TURNS;
  expect(late).toBeLessThan(TURNS / 10);
  expect(Math.abs(reached - refused)).toBeLessThanOrEqual(2 * late);
  expect(packetsTo(NEVER.ten)).toBe(0);
  expect(packetsTo(PUBLIC.denied)).toBe(0);
  expect(packetsTo(PUBLIC.allowed)).toBeGreaterThan(reached * 4);
});

test("an address that a name has left is closed soon after, to new connections", async () => {
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
  // 30 s is the least time of an answer, and 60 s come on top.
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
