import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { expect, test } from "vitest";
import { dialPublic, dialPublicExcept, makeDial } from "./dial.ts";

const never = new AbortController().signal;

/** Listens on all loopback addresses. */
async function listen() {
  let connections = 0;
  const server = createServer((socket) => {
    connections++;
    socket.destroy();
  });
  await once(server.listen(0), "listening");
  const close = () => new Promise<void>((resolve) => server.close(() => resolve()));
  return {
    port: (server.address() as AddressInfo).port,
    connections: () => connections,
    [Symbol.asyncDispose]: close,
  };
}

test.each(["127.0.0.1", "169.254.169.254", "10.1.2.3", "::1", "::ffff:127.0.0.1"])(
  "%s is not connected",
  async (host) => {
    await using server = await listen();
    await expect(dialPublic(host, server.port, never)).rejects.toMatchObject({ code: "address_refused" });
    expect(server.connections()).toBe(0);
  },
);

test("an address that the caller forbids is not connected, nor is one that is not public", async () => {
  const asked: string[] = [];
  const dial = dialPublicExcept((address) => {
    asked.push(address);
    return true;
  });
  for (const host of ["9.9.9.9", "127.0.0.1"])
    await expect(dial(host, 443, never)).rejects.toMatchObject({ code: "address_refused" });
  expect(asked).toEqual(["9.9.9.9"]);
});

test("a name of this host is not connected", async () => {
  await using server = await listen();
  await expect(dialPublic("localhost", server.port, never)).rejects.toMatchObject({
    code: "address_refused",
  });
  expect(server.connections()).toBe(0);
});

test("one forbidden address among others spoils the answer", async () => {
  await using server = await listen();
  const lookup = async () => ["127.0.0.1", "127.0.0.2"];
  const dial = makeDial({ lookup, mayDial: (address) => address === "127.0.0.1" });
  await expect(dial("registry.example.com", server.port, never)).rejects.toMatchObject({
    code: "address_refused",
  });
  expect(server.connections()).toBe(0);
});

test("the address that was checked is the one that is connected", async () => {
  await using server = await listen();
  const checked: string[] = [];
  let answers = 0;
  const dial = makeDial({
    lookup: async () => [`127.0.0.${++answers}`],
    mayDial: (address) => checked.push(address) > 0,
  });
  const socket = await dial("registry.example.com", server.port, never);
  expect([checked, socket.remoteAddress?.replace("::ffff:", "")]).toEqual([["127.0.0.1"], "127.0.0.1"]);
  socket.destroy();
});

test("a further address is tried when the first does not answer", async () => {
  await using server = await listen();
  // Broadcast: it refuses at once.
  const dial = makeDial({ lookup: async () => ["255.255.255.255", "127.0.0.1"], mayDial: () => true });
  const socket = await dial("registry.example.com", server.port, never);
  expect(socket.remoteAddress).toContain("127.0.0.1");
  socket.destroy();
});

test.each([
  ["has no addresses", async () => []],
  [
    "is not known",
    async () => {
      throw new Error("ENOTFOUND");
    },
  ],
])("a name that %s is unreachable", async (_, lookup) => {
  const dial = makeDial({ lookup, mayDial: () => true });
  await expect(dial("registry.example.com", 443, never)).rejects.toMatchObject({ code: "unreachable" });
});
