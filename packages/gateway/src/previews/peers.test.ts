import type { Server } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { createLog } from "@vivarium/kit/log";
import { afterEach, expect, test } from "vitest";
import { closedOf, expose, get, startGateway, startGuest, stopGuest } from "../../test-support/previews.ts";
import { createListener, listen } from "./listener.ts";

const log = createLog("previews", "silent");
const BOUNDS = { ofOneAddress: 3 };
let server: Server | undefined;
let visitors: Socket[] = [];

afterEach(() => {
  for (const socket of visitors) socket.destroy();
  visitors = [];
  server?.close();
});

/** The proxy's address is `127.0.0.9`. */
async function listenBounded(): Promise<AddressInfo> {
  const isShared = (address: string) => address === "127.0.0.9";
  server = createListener(undefined, async (_, response) => void response.end("answered"), {
    bounds: BOUNDS,
    isShared,
    log,
  });
  return await listen(server, { host: "127.0.0.1", port: 0 }, log);
}

/** The answer to one request over a connection that stays open; undefined when it was closed instead. */
async function ask(
  { port }: { port: number },
  localAddress: string,
  host = "x",
): Promise<string | undefined> {
  const socket = connect({ host: "127.0.0.1", port, localAddress });
  socket.on("error", () => undefined);
  visitors.push(socket);
  socket.write(`GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`);
  return await new Promise((resolve) => {
    socket.once("data", (bytes) => resolve(bytes.toString()));
    socket.once("close", () => resolve(undefined));
  });
}

test("an address has as many connections as it may, and others have theirs", async () => {
  const at = await listenBounded();
  for (let i = 0; i < 3; i++) expect(await ask(at, "127.0.0.2")).toMatch(/^HTTP\/1.1 200/);
  for (let i = 0; i < 20; i++) expect(await ask(at, "127.0.0.2")).toBeUndefined();
  expect(await ask(at, "127.0.0.3")).toMatch(/^HTTP\/1.1 200/);
  const [first] = visitors as [Socket];
  first.destroy();
  await closedOf(first);
  while ((await ask(at, "127.0.0.2")) === undefined);
  expect(await ask(at, "127.0.0.2")).toBeUndefined();
});

test("an address that many share has as many as there are", async () => {
  const at = await listenBounded();
  for (let i = 0; i < 9; i++) expect(await ask(at, "127.0.0.9")).toMatch(/^HTTP\/1.1 200/);
});

test("this host's own address is shared by many", async () => {
  const guest = await startGuest((_, response) => response.end("answered"));
  const gateway = await startGateway({ bounds: BOUNDS });
  const { host } = expose(gateway, guest, { visibility: "public" });
  for (let i = 0; i < 9; i++) expect(await ask(gateway, "127.0.0.1", host)).toMatch(/^HTTP\/1.1 200/);
  expect((await get(gateway, host)).body).toBe("answered");
  for (const socket of visitors) socket.destroy();
  await gateway.previews.close();
  await stopGuest(guest);
});
