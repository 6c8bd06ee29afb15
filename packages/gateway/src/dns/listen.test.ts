import assert from "node:assert/strict";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { connect } from "node:net";
import { GATEWAY_PORTS, type GatewayTables } from "@vivarium/contract/gateway";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { type Answer, type DecodedPacket, decode, encode, type RecordType } from "dns-packet";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { until } from "../../test-support/in-time.ts";
import { a, alias, allowAll, deny, denyAll, startWorld, type World } from "../../test-support/world.ts";

const PREFIX = "127.31.3";
const HASTY_PREFIX = "127.31.13";
const NO_ERROR = 0;
const SERVER_FAILURE = 2;
const NO_SUCH_NAME = 3;
const REFUSED = 5;
const PUBLIC = "127.31.3.80";
const LOOK_MS = 50;
let world: World;
/** A world that waits a fraction of the usual time for a name server. */
let hasty: World;

beforeAll(async () => {
  world = await startWorld(PREFIX, { http: 1, tls: 1 });
  hasty = await startWorld(HASTY_PREFIX, { http: 1, tls: 1 }, undefined, {
    dnsLimits: { attemptMs: 400 * SLOWNESS, tcpIdleMs: 400 * SLOWNESS },
  });
});

beforeEach(async () => {
  // Without a machine in between, nothing that was found before is known.
  await world.apply({ withoutFirst: true });
  await world.apply({ first: deny("good.example", "*.wild.example", "db.example:5432") });
  await world.entries(0);
  world.names.asked.length = 0;
  world.names.script = (name) => [a(name, PUBLIC)];
  world.node.pins.length = 0;
  world.node.pinStatus = 204;
});

afterAll(() => Promise.all([world.close(), hasty.close()]));

const query = (name: string, type: string, id = 4711) =>
  encode({ type: "query", id, flags: 0x100, questions: [{ name, type: type as RecordType }] });

/** The answer to these bytes, or undefined when none comes in time. */
async function sendUdp(message: Buffer, host = world.hosts[0], waitMs = 8_000): Promise<Buffer | undefined> {
  const socket = createSocket("udp4");
  socket.send(message, GATEWAY_PORTS.dns, host);
  const givenUp = new AbortController();
  // A pause of this process counts for one look: what came meanwhile is heard first.
  let looks = Math.ceil((waitMs * SLOWNESS) / LOOK_MS);
  const looking = setInterval(() => --looks > 0 || givenUp.abort(), LOOK_MS);
  const [reply] = await once(socket, "message", { signal: givenUp.signal }).catch(() => []);
  clearInterval(looking);
  socket.close();
  return reply;
}

async function ask(
  name: string,
  type = "A",
  host = world.hosts[0],
  waitMs?: number,
): Promise<DecodedPacket & { code: number }> {
  const reply = await sendUdp(query(name, type), host, waitMs);
  assert(reply, "there is no answer in time");
  const packet = decode(reply);
  expect(packet.id).toBe(4711);
  expect(packet.questions?.[0]?.name).toBe(name);
  return { ...packet, code: reply.readUInt16BE(2) & 0xf };
}

const addressesIn = ({ answers = [] }: DecodedPacket) =>
  answers.map((record) => ("data" in record ? record.data : undefined));

/** The number of refused questions among this many different names below the domain. */
async function countRefused(total: number, domain: string): Promise<number> {
  let refused = 0;
  for (let at = 0; at < total; at += 30) {
    const names = Array.from({ length: 30 }, (_, offset) => `n${at + offset}.${domain}`);
    const codes = await Promise.all(names.map(async (name) => (await ask(name)).code));
    refused += codes.filter((code) => code === REFUSED).length;
  }
  return refused;
}

describe("in mode deny", () => {
  test("a name outside the policy is refused without a question to anybody, whatever is asked about it", async () => {
    for (const name of [
      "evil.example",
      "a.good.example",
      "wild.example",
      "evil-wild.example",
      "localhost",
      "example",
    ]) {
      for (const type of ["A", "AAAA", "TXT", "HTTPS_65", "NS"]) {
        const answer = await ask(name, type.replace(/.*_/, "UNKNOWN_"));
        expect([name, type, answer.code]).toEqual([name, type, REFUSED]);
      }
    }
    expect(world.names.asked).toEqual([]);
    expect(
      (await world.entries(30)).every(
        ({ kind, verdict, reason }) => `${kind} ${verdict} ${reason}` === "dns denied name_not_allowed",
      ),
    ).toBe(true);
    expect((await ask("good.example")).code).toBe(NO_ERROR);
    expect(world.names.namesAsked()).toEqual(["good.example"]);
  });

  test("a name of the policy has its addresses, in every spelling, also below a wildcard", async () => {
    for (const name of ["good.example", "GOOD.Example", "a.wild.example", "a.b.wild.example"]) {
      const answer = await ask(name);
      expect([name, answer.code, addressesIn(answer)]).toEqual([name, NO_ERROR, [PUBLIC]]);
    }
    expect(await world.entries(4)).toMatchObject([
      {
        kind: "dns",
        host: "good.example",
        address: PUBLIC,
        verdict: "allowed",
        reason: "name_allowed",
        count: 2,
      },
      { host: "a.wild.example" },
      { host: "a.b.wild.example" },
    ]);
  });

  test("an allowed name has nothing but addresses, and nobody is asked for more", async () => {
    for (const type of ["AAAA", "TXT", "MX", "NULL", "UNKNOWN_65", "UNKNOWN_64", "UNKNOWN_255"]) {
      const answer = await ask("good.example", type);
      expect([type, answer.code, answer.answers]).toEqual([type, NO_ERROR, []]);
    }
    expect(world.names.asked).toEqual([]);
  });

  test("an empty list opens no name, and a slot without a machine none", async () => {
    expect((await ask("good.example", "A", world.hosts[1])).code).toBe(REFUSED);
    expect((await ask("good.example", "A", world.hosts[2])).code).toBe(REFUSED);
    expect(world.names.asked).toEqual([]);
    await world.apply({ second: deny("good.example") });
    expect((await ask("good.example", "A", world.hosts[1])).code).toBe(NO_ERROR);
  });

  test("5,000 different names of the policy are asked for in an hour; names outside it do not count", async () => {
    expect(await countRefused(60, "evil.example")).toBe(60);
    expect(await countRefused(5_010, "wild.example")).toBe(10);
    expect((await ask("n0.wild.example")).code).toBe(NO_ERROR);
    await world.entries(0);
    expect((await ask("good.example")).code).toBe(REFUSED);
    expect(await world.entries()).toMatchObject([{ host: "good.example", reason: "too_many_names" }]);
  });
});

describe("addresses", () => {
  test("are those at the end of the aliases, given for the name itself, four at most, for 30 to 300 seconds", async () => {
    const rows: [string, number, number][] = [
      ["zero.wild.example", 0, 30],
      ["middle.wild.example", 77, 77],
      ["long.wild.example", 2 ** 31, 300],
    ];
    for (const [name, ttl, given] of rows) {
      world.names.script = () => [
        alias(name, "edge.other.tld", ttl),
        ...[1, 2, 3, 4, 5].map((at) => a("edge.other.tld", `${PREFIX}.${at}`, ttl)),
      ];
      const { answers = [] } = await ask(name);
      expect(answers).toMatchObject(
        [1, 2, 3, 4].map((at) => ({ type: "A", name, ttl: given, data: `${PREFIX}.${at}` })),
      );
    }
  });

  test("are searched on where a name server leaves an alias at that", async () => {
    world.names.script = (name) =>
      name === "good.example" ? [alias(name, "edge.other.tld")] : [a(name, PUBLIC)];
    expect(addressesIn(await ask("good.example"))).toEqual([PUBLIC]);
    expect(world.names.namesAsked()).toEqual(["good.example", "edge.other.tld"]);
  });

  test("of which one may never be reached are no addresses at all, in both modes", async () => {
    await world.apply({ first: deny("*.wild.example"), second: allowAll });
    const bad: Answer[][] = [
      [a("", "10.1.2.3")],
      [a("", PUBLIC), a("", "10.1.2.3")],
      [a("", PUBLIC), a("", PUBLIC), a("", PUBLIC), a("", PUBLIC), a("", "10.1.2.3")],
      [a("", "0.0.0.0")],
      [a("", "255.255.255.255")],
      [a("", "169.254.169.254")],
      [a("", world.privateAddress)],
    ];
    for (const [at, records] of bad.entries()) {
      const name = `n${at}.wild.example`;
      world.names.script = () => records.map((record) => ({ ...record, name })) as Answer[];
      for (const host of [world.hosts[0], world.hosts[1]]) {
        const answer = await ask(name, "A", host);
        expect([at, answer.code, answer.answers]).toEqual([at, NO_SUCH_NAME, []]);
      }
    }
    world.names.script = (name) => [alias(name, "in.other.tld"), a("in.other.tld", "10.1.2.3")];
    expect((await ask("alias.wild.example")).code).toBe(NO_SUCH_NAME);
    world.names.script = (name) => [alias(name, "in.other.tld"), a("in.other.tld", PUBLIC)];
    expect((await ask("fine.wild.example")).code).toBe(NO_ERROR);
  });

  test("of private addresses are answered if the operator opened a port of each", async () => {
    const open = [
      { range: "10.1.2.3/32", port: 443 },
      { range: "10.2.0.0/24", port: 8080 },
    ];
    await world.apply({ first: deny("*.wild.example"), second: allowAll, open });
    const answers: [Answer[], number][] = [
      [[a("", "10.1.2.3")], NO_ERROR],
      [[a("", "10.2.0.255"), a("", PUBLIC)], NO_ERROR],
      [[a("", "10.1.2.4")], NO_SUCH_NAME],
      [[a("", "10.1.2.3"), a("", "10.2.1.0")], NO_SUCH_NAME],
      [[a("", "10.1.2.3"), a("", "169.254.169.254")], NO_SUCH_NAME],
      [[a("", world.privateAddress)], NO_SUCH_NAME],
    ];
    for (const [at, [records, code]] of answers.entries()) {
      const name = `open${at}.wild.example`;
      world.names.script = () => records.map((record) => ({ ...record, name })) as Answer[];
      for (const host of [world.hosts[0], world.hosts[1]]) {
        const answer = await ask(name, "A", host);
        expect([at, answer.code, addressesIn(answer).length]).toEqual([
          at,
          code,
          code === NO_ERROR ? records.length : 0,
        ]);
      }
    }
    world.names.asked.length = 0;
    expect((await ask("elsewhere.example")).code).toBe(REFUSED);
    expect(world.names.asked).toEqual([]);
  });

  test("of metadata services do not exist, also in mode allow", async () => {
    await world.apply({ first: deny("metadata.google.internal"), second: allowAll });
    for (const host of [world.hosts[0], world.hosts[1]]) {
      expect((await ask("metadata.google.internal", "A", host)).code).toBe(NO_SUCH_NAME);
    }
    expect(world.names.asked).toEqual([]);
  });

  test("that are not there are answered as the name server answered", async () => {
    world.names.script = (name) => (name === "good.example" ? NO_SUCH_NAME : []);
    expect((await ask("good.example")).code).toBe(NO_SUCH_NAME);
    expect(await ask("a.wild.example")).toMatchObject({ code: NO_ERROR, answers: [] });
  });

  test("are kept for their time, for the machine that asked alone", async () => {
    await world.apply({ first: deny("own.example"), second: deny("own.example") });
    for (const host of [world.hosts[0], world.hosts[0], world.hosts[1]]) await ask("own.example", "A", host);
    expect(world.names.asked).toHaveLength(2);
  });
});

describe("an entry with a port", () => {
  test("is opened in the kernel for the addresses before they are answered", async () => {
    expect(addressesIn(await ask("db.example"))).toEqual([PUBLIC]);
    expect(world.node.pins).toEqual([
      {
        machine_id: "mch_1",
        generation: expect.any(Number),
        host: "db.example",
        ports: [5432],
        addresses: [PUBLIC],
        ttl_s: 120,
      },
    ]);
    await ask("good.example");
    expect(world.node.pins).toHaveLength(1);
  });

  test("is opened once for as many questions as come, with all its ports in one call", async () => {
    await world.apply({ first: deny("db.wild.example:5432", "*.wild.example:6000", "*.wild.example:80") });
    await Promise.all(Array.from({ length: 20 }, () => ask("db.wild.example")));
    await ask("db.wild.example");
    expect(world.node.pins).toMatchObject([
      { host: "db.wild.example", ports: [5432, 6000], addresses: [PUBLIC] },
    ]);
    await ask("other.wild.example");
    expect(world.node.pins).toMatchObject([{}, { host: "other.wild.example", ports: [6000] }]);
    // Tables that change something else.
    world.tables.replace(structuredClone(world.tables.current() as GatewayTables));
    await ask("db.wild.example");
    expect(world.node.pins).toHaveLength(2);
  });

  test("is opened anew under another policy, and after a node came back", async () => {
    await ask("db.example");
    await world.apply({ first: deny("db.example:5432") });
    await ask("db.example");
    expect(world.node.pins).toHaveLength(2);
    world.tables.forgetPins();
    await ask("db.example");
    expect(world.node.pins).toHaveLength(3);
  });

  test("has no addresses when they could not be opened", async () => {
    world.node.pinStatus = 409;
    expect(await ask("db.example")).toMatchObject({ code: SERVER_FAILURE, answers: [] });
    world.node.pinStatus = 204;
    expect((await ask("db.example")).code).toBe(NO_ERROR);
  });
});

describe("in mode allow", () => {
  beforeEach(() => world.apply({ first: allowAll }));

  test("every name is asked for, and has no IPv6 address and no hidden server names", async () => {
    expect(addressesIn(await ask("any.example"))).toEqual([PUBLIC]);
    for (const type of ["AAAA", "UNKNOWN_65", "UNKNOWN_64", "UNKNOWN_255"]) {
      expect([type, await ask("any.example", type)]).toMatchObject([type, { code: NO_ERROR, answers: [] }]);
    }
    expect(world.names.asked.map(({ type }) => type)).toEqual(["A"]);
  });

  test("other types come as the name server sends them, unless they lead where nothing dials", async () => {
    world.names.script = (name) => [{ type: "TXT", name, ttl: 5, data: ["v=1"] }];
    expect((await ask("any.example", "TXT")).answers).toMatchObject([
      { type: "TXT", ttl: 5, data: [Buffer.from("v=1")] },
    ]);
    const mail =
      (address: string) =>
      (name: string): Answer[] => [
        { type: "MX", name, ttl: 5, data: { preference: 1, exchange: "mx.example" } },
        a("mx.example", address),
      ];
    world.names.script = mail("10.9.9.9");
    expect(await ask("mail.example", "MX")).toMatchObject({ code: NO_SUCH_NAME, answers: [] });
    world.names.script = mail(PUBLIC);
    expect((await ask("mail.example", "MX")).answers).toHaveLength(2);
  });

  test("answers that are too long for a datagram come over TCP", async () => {
    const texts = Array.from({ length: 10 }, () => "x".repeat(200));
    world.names.script = (name) => texts.map((data): Answer => ({ type: "TXT", name, ttl: 5, data }));
    const short = decode((await sendUdp(query("long.example", "TXT"))) ?? Buffer.alloc(12));
    expect(short).toMatchObject({ flag_tc: true, answers: [] });
    const [whole] = await sendTcp([query("long.example", "TXT")]);
    expect(decode(whole ?? Buffer.alloc(12)).answers).toHaveLength(10);
  });

  test("an answer of a name server that was cut is asked for again over TCP", async () => {
    world.names.script = (name, _, question) => {
      const first = world.names.asked.at(-1)?.transport === "udp";
      const { id, questions } = decode(question);
      return first ? encode({ type: "response", id, flags: 0x200, questions }) : [a(name, PUBLIC)];
    };
    expect(addressesIn(await ask("cut.example"))).toEqual([PUBLIC]);
    expect(world.names.asked.map(({ transport }) => transport)).toEqual(["udp", "tcp"]);
  });

  test("5,000 different names are asked for in an hour, and names asked before after that too", async () => {
    expect(await countRefused(5_010, "tunnel.example")).toBe(10);
    expect((await ask("n0.tunnel.example")).code).toBe(NO_ERROR);
    await world.apply({ first: allowAll, second: allowAll });
    expect((await ask("other.example", "A", world.hosts[1])).code).toBe(NO_ERROR);
  });
});

/** Everything that is answered on one TCP connection to these messages, by the time it is closed. */
async function sendTcp(
  messages: Buffer[],
  options: { isRaw?: boolean; isOpen?: boolean; host?: string } = {},
): Promise<Buffer[]> {
  const socket = connect({ host: options.host ?? world.hosts[0], port: GATEWAY_PORTS.dns });
  let heard = Buffer.alloc(0);
  socket.on("error", () => {});
  socket.on("data", (chunk) => {
    heard = Buffer.concat([heard, chunk]);
  });
  for (const message of messages) {
    const length = Buffer.alloc(2);
    length.writeUInt16BE(message.length);
    socket.write(options.isRaw ? message : Buffer.concat([length, message]));
  }
  if (!options.isOpen) socket.end();
  await new Promise((resolve) => socket.once("close", resolve));
  const replies: Buffer[] = [];
  for (let at = 0; at + 2 <= heard.length; at += 2 + heard.readUInt16BE(at)) {
    replies.push(heard.subarray(at + 2, at + 2 + heard.readUInt16BE(at)));
  }
  return replies;
}

describe("messages that are no question are dropped, and the next one is answered:", () => {
  const loop = Buffer.concat([query("a.b", "A").subarray(0, 12), Buffer.from([0xc0, 0x0c, 0, 1, 0, 1])]);
  const counted = (count: number) => {
    const message = query("good.example", "A");
    message.writeUInt16BE(count, 4);
    return message;
  };
  test.each<[string, Buffer]>([
    ["a name that points at itself", loop],
    ["no question", counted(0)],
    ["two questions", counted(2)],
    ["65535 questions", counted(65_535)],
    ["half a message", query("good.example", "A").subarray(0, 20)],
    ["an answer", encode({ type: "response", id: 1, questions: [{ name: "good.example", type: "A" }] })],
    ["600 bytes", Buffer.concat([query("good.example", "A"), Buffer.alloc(600)])],
    ["nothing", Buffer.alloc(0)],
  ])("%s", async (_, message) => {
    expect(await sendUdp(message, world.hosts[0], 100)).toBeUndefined();
    expect(await sendTcp([message])).toEqual([]);
    expect(world.names.asked).toEqual([]);
    expect(await world.entries()).toMatchObject([{ kind: "dns", verdict: "denied", reason: "malformed" }]);
    expect((await ask("good.example")).code).toBe(NO_ERROR);
  });

  test("64 KiB over TCP, a length without a message, and a message that never ends", async () => {
    expect(await sendTcp([Buffer.alloc(65_535)])).toEqual([]);
    expect(
      await sendTcp([Buffer.from([0, 40, 1, 2, 3])], { isRaw: true, isOpen: true, host: hasty.hosts[0] }),
    ).toEqual([]);
    const replies = await sendTcp([query("good.example", "A", 1), query("evil.example", "A", 2)]);
    expect(replies.map((reply) => [reply.readUInt16BE(0), reply.readUInt16BE(2) & 0xf])).toEqual([
      [1, NO_ERROR],
      [2, REFUSED],
    ]);
  });
});

test("questions over TCP come to 50 a second after 200, over all connections of a machine, and for it alone", async () => {
  const questions = Array.from({ length: 150 }, (_, id) => query("evil.example", "A", id));
  const started = performance.now();
  const many = Promise.all([sendTcp(questions), sendTcp(questions)]);
  expect(await sendTcp(questions.slice(0, 2), { host: world.hosts[1] })).toHaveLength(2);
  const ids = (await many).map((replies) => replies.map((reply) => reply.readUInt16BE(0)));
  // The last hundred took two seconds; less the fractions that timers may be early by.
  expect(performance.now() - started).toBeGreaterThan(1_900);
  expect(ids).toEqual([questions.map((_, id) => id), questions.map((_, id) => id)]);
});

describe("a name server", () => {
  let usual: World;
  beforeAll(() => {
    usual = world;
    world = hasty;
  });
  afterAll(() => {
    world = usual;
  });

  test("is asked with an id and a port of its own each time", async () => {
    for (let at = 0; at < 8; at += 1) await ask(`n${at}.wild.example`);
    expect(new Set(world.names.asked.map(({ id }) => id)).size).toBeGreaterThan(6);
    expect(new Set(world.names.asked.map(({ port }) => port)).size).toBeGreaterThan(6);
    expect(world.names.asked.every(({ id }) => id === 4711)).toBe(false);
  });

  const forged = (change: { id?: number; name?: string }) => (name: string, _: string, question: Buffer) => {
    const id = (decode(question).id ?? 0) ^ (change.id ?? 0);
    const asked = change.name ?? name;
    const questions = [{ name: asked, type: "A" as const }];
    return encode({ type: "response", id, questions, answers: [a(asked, "127.31.3.66")] });
  };
  test.each([
    ["that is silent", () => "silent" as const],
    ["that answers with another id", forged({ id: 1 })],
    ["that answers another question", forged({ name: "evil.example" })],
    ["that answers with rubbish", () => Buffer.from("rubbish")],
    ["that fails", () => SERVER_FAILURE],
  ])("%s makes for a failure within 5 seconds", async (_, script) => {
    world.names.script = script;
    const failed = await ask("good.example", "A", world.hosts[0], 5_000);
    expect(failed).toMatchObject({ code: SERVER_FAILURE, answers: [] });
    world.names.script = forged({});
    expect(addressesIn(await ask("good.example"))).toEqual(["127.31.3.66"]);
  });

  test("that sends slowly from alias to alias makes for a failure, without a time of its own for each", async () => {
    const times = new Map<string, number>();
    world.names.script = (name) => {
      times.set(name, (times.get(name) ?? 0) + 1);
      return times.get(name) === 3 ? [alias(name, `on.${name}`)] : "silent";
    };
    const failed = await ask("good.example", "A", world.hosts[0], 15_000);
    expect(failed).toMatchObject({ code: SERVER_FAILURE, answers: [] });
    expect([...times.keys()]).not.toContain("on.on.good.example");
  });
});

test("an answer that was found under an earlier policy is not sent", async () => {
  world.names.script = () => "silent";
  const late = ask("good.example");
  await until(() => world.names.asked.length > 0);
  await world.apply({ first: denyAll });
  world.names.script = (name) => [a(name, PUBLIC)];
  expect(await late).toMatchObject({ code: SERVER_FAILURE, answers: [] });
});

test("a name server that is not there at all makes for a failure too, and the wait of one machine is not another's", async () => {
  await world.apply({ first: deny("*.wild.example"), second: deny("good.example") });
  world.names.script = (name) => (name === "good.example" ? [a(name, PUBLIC)] : "silent");
  const waiting = Array.from({ length: 100 }, (_, at) => ask(`n${at}.wild.example`));
  expect((await ask("good.example", "A", world.hosts[1])).code).toBe(NO_ERROR);
  const codes = (await Promise.all(waiting)).map(({ code }) => code);
  expect(codes.every((code) => code === SERVER_FAILURE)).toBe(true);
  expect(world.names.namesAsked().filter((name) => name === "n99.wild.example")).toEqual([]);
});
