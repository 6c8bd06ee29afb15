/** The network of the end-to-end tests: it answers, and it logs everything that reaches it. */

import { execFile } from "node:child_process";
import { createSocket } from "node:dgram";
import { Resolver } from "node:dns/promises";
import { existsSync, readdirSync, writeFileSync } from "node:fs";
import { request } from "node:https";
import { connect } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { ALL, NEVER, PORTS, PUBLIC } from "./support/world/addresses.ts";
import { createWorldNamespace } from "./support/world/namespace.ts";
import { startWorld, type World } from "./support/world/world.ts";

const PROBE = fileURLToPath(new URL("./support/world/guest-probe.py", import.meta.url));

let world: World;
beforeAll(async () => {
  world = await startWorld();
});
afterAll(() => world.close());
beforeEach(() => world.forget());

async function ask(host: string, port: number, text: string): Promise<string> {
  const socket = connect(port, host);
  socket.write(text);
  const [answer] = await new Promise<Buffer[]>((resolve, reject) => {
    socket.once("data", (...chunks: Buffer[]) => resolve(chunks));
    socket.once("error", reject);
  });
  const closed = new Promise((resolve) => socket.once("close", resolve));
  socket.end();
  await closed;
  return String(answer);
}

function resolver(host: string): Resolver {
  const made = new Resolver({ timeout: 5_000 * SLOWNESS, tries: 1 });
  made.setServers([host]);
  return made;
}

test.each(ALL)("%s echoes over TCP, and reports the number of bytes", async (host) => {
  expect(await ask(host, 22, "hello")).toBe("hello");
  await expect
    .poll(() => world.take())
    .toContainEqual(expect.objectContaining({ kind: "closed", host, port: 22, bytes: 5 }));
  const [packets] = world.namespace.counted().filter(({ address }) => address === host);
  expect(packets).toMatchObject({ protocol: "tcp" });
  expect(packets?.packets).toBeGreaterThanOrEqual(4);
});

test("datagrams come back and are counted", async () => {
  const socket = createSocket("udp4");
  const answered = new Promise((resolve) => socket.once("message", (message) => resolve(String(message))));
  socket.send("ping", 443, PUBLIC.denied);
  expect(await answered).toBe("ping");
  socket.close();
  expect(await world.take()).toEqual([
    { kind: "udp", host: PUBLIC.denied, port: 443, text: "ping", bytes: 4 },
  ]);
  expect(world.namespace.countedPorts()).toEqual([
    { address: PUBLIC.denied, protocol: "udp", port: 443, packets: 1, bytes: 32 },
  ]);
});

test("a port without a server is counted too", async () => {
  const socket = connect(4321, NEVER.ten);
  await new Promise((resolve) => socket.once("error", resolve));
  expect(world.namespace.countedPorts()).toMatchObject([{ address: NEVER.ten, port: 4321, packets: 1 }]);
  expect(await world.take()).toEqual([]);
});

test("its name servers say what the test wants, whichever is asked", async () => {
  await world.say({
    "a.example.com": { a: [PUBLIC.allowed, PUBLIC.second], ttl: 7 },
    "alias.example.com": { cname: "a.example.com" },
    "*.wild.example.com": { a: [PUBLIC.moved] },
    "turns.example.com": [{ a: [PUBLIC.allowed] }, { a: [NEVER.ten] }],
    "text.example.com": { txt: "words" },
    "broken.example.com": { rcode: 2 },
    "lied.example.com": { a: [PUBLIC.allowed], lies: "id" },
  });
  const ours = resolver(PUBLIC.resolver);
  expect(await ours.resolve4("a.example.com", { ttl: true })).toEqual([
    { address: PUBLIC.allowed, ttl: 7 },
    { address: PUBLIC.second, ttl: 7 },
  ]);
  expect(await ours.resolve4("alias.example.com")).toEqual([PUBLIC.allowed, PUBLIC.second]);
  expect(await ours.resolve4("x.y.wild.example.com")).toEqual([PUBLIC.moved]);
  expect(await ours.resolve4("turns.example.com")).toEqual([PUBLIC.allowed]);
  expect(await ours.resolve4("turns.example.com")).toEqual([NEVER.ten]);
  expect(await ours.resolveTxt("text.example.com")).toEqual([["words"]]);
  expect(await ours.resolve4("lied.example.com")).toEqual([PUBLIC.allowed]);
  await expect(ours.resolve4("nobody.example.com")).rejects.toMatchObject({ code: "ENOTFOUND" });
  await expect(ours.resolve4("broken.example.com")).rejects.toMatchObject({ code: "ESERVFAIL" });
  await world.take();
  await resolver(PUBLIC.strangeResolver).resolve4("a.example.com");
  expect(await world.take()).toEqual([
    { kind: "dns", host: PUBLIC.strangeResolver, name: "a.example.com", type: "A", transport: "udp" },
  ]);
});

function fetchOverTls(host: string, servername: string, path: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = request(
      { host, port: 443, servername, path, ca: world.ca, headers: { host: servername }, agent: false },
      async (response) => {
        const chunks: Buffer[] = [];
        for await (const chunk of response) chunks.push(chunk as Buffer);
        resolve(Buffer.concat(chunks).toString());
      },
    );
    asked.once("error", reject).end();
  });
}

test("its web servers have certificates for all its names, and report which name was asked for", async () => {
  writeFileSync(join(world.folderOf("files.example.org"), "page.html"), "<p>a page</p>");
  expect(await fetchOverTls(PUBLIC.denied, "www.example.com", "/")).toBe("hello from www.example.com\n");
  expect(await fetchOverTls(PUBLIC.allowed, "files.example.org", "/page.html")).toBe("<p>a page</p>");
  expect(await fetchOverTls(PUBLIC.allowed, "files.example.org", "/other.html")).toBe("not here\n");
  const events = await world.take();
  expect(events).toContainEqual({ kind: "sni", host: PUBLIC.denied, name: "www.example.com" });
  expect(events).toContainEqual(
    expect.objectContaining({ kind: "request", host: PUBLIC.allowed, port: 443, url: "/page.html" }),
  );
  const closed = events.filter((event) => event.kind === "closed");
  expect(closed.every(({ bytes }) => bytes > 300)).toBe(true);
});

test("the bytes that a sink received so far can be asked for, and a source does not end", async () => {
  const up = connect(PORTS.sink, PUBLIC.bulk);
  up.write(Buffer.alloc(100_000));
  await expect.poll(() => world.open()).toMatchObject([{ port: PORTS.sink, bytes: 100_000 }]);
  const down = connect(PORTS.source, PUBLIC.bulk);
  let got = 0;
  down.on("data", (chunk) => {
    got += chunk.length;
  });
  await expect.poll(() => got).toBeGreaterThan(1_000_000);
  up.destroy();
  down.destroy();
  await expect.poll(() => world.open()).toEqual([]);
});

test("the result of a probe of a guest is reported", async () => {
  await world.say({ "a.example.com": { a: [PUBLIC.allowed, PUBLIC.second], ttl: 7 } });
  const host = PUBLIC.denied;
  const chunks = [Buffer.from("hello").toString("hex")];
  const probes = [
    { op: "tcp", host, port: 9000, chunks, again: 2, wait: 1 },
    { op: "tcp", host, port: 4321, chunks },
    { op: "udp", host, port: 443, chunks },
    { op: "udp", host, port: 4322, chunks, wait: 1 },
    { op: "tls", host, port: 443, name: "www.example.com", verify: true },
    { op: "dns", server: PUBLIC.resolver, name: "a.example.com" },
    { op: "dns", server: PUBLIC.resolver, name: "a.example.com", tcp: true },
    { op: "dns", server: PUBLIC.resolver, name: "nobody.example.com", type: 28 },
    { op: "ping", host },
    { op: "ip", host, protocol: 47 },
    { op: "get", url: `https://${host}/echo` },
  ];
  const caFile = join(world.folderOf("ca"), "ca.pem");
  writeFileSync(caFile, world.ca);
  const asked = probes.map((probe) => ({ ca: caFile, ...probe }));
  const { stdout } = await promisify(execFile)("python3", [PROBE, JSON.stringify(asked)]);
  const found = { rcode: 0, a: [PUBLIC.allowed, PUBLIC.second], types: [1, 1], ttls: [7, 7] };
  expect(JSON.parse(stdout)).toEqual([
    expect.objectContaining({ got: "hellohellohello", end: "open" }),
    expect.objectContaining({ error: "ECONNREFUSED" }),
    { got: "hello" },
    expect.objectContaining({ error: "ECONNREFUSED" }),
    expect.objectContaining({ got: expect.stringContaining("hello from www.example.com"), end: "closed" }),
    found,
    found,
    { rcode: 3, a: [], types: [], ttls: [] },
    { got: "answered" },
    { got: "sent" },
    { status: 200, got: expect.stringContaining('"url":"/echo"') },
  ]);
  const protocols = world.namespace.counted().flatMap((one) => (one.address === host ? [one.protocol] : []));
  expect(new Set(protocols)).toEqual(new Set(["tcp", "udp", "icmp", "47"]));
});

test("nothing but IPv4 is on its link", () => {
  expect(world.namespace.strangeFrames()).toBe(0);
});

test("a second one in the same network is refused with the way out", () => {
  expect(() => createWorldNamespace()).toThrow("scripts/in-own-network");
  expect(existsSync(`/run/netns/${world.namespace.name}`)).toBe(true);
});

test("nothing is left of it", async () => {
  const { name } = world.namespace;
  await world.close();
  expect(existsSync(`/run/netns/${name}`)).toBe(false);
  expect(readdirSync("/sys/class/net").filter((link) => link.startsWith("wldh"))).toEqual([]);
  world = await startWorld();
});
