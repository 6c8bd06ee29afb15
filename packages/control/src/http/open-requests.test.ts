import { fastify } from "fastify";
import { expect, test } from "vitest";
import type { Principal } from "../access/principal.ts";
import { OpenRequests, trackOpenRequests } from "./open-requests.ts";

const KEY_A = { credentialId: "key_a", expiresAt: null };

test("a request that is over is not kept, nor is its credential", async () => {
  const open = new OpenRequests();
  const ended: string[] = [];
  const [first, second] = ["first", "second"].map((name) => open.add(KEY_A, () => ended.push(name)));
  open.add({ ...KEY_A, credentialId: "key_b" }, () => ended.push("other"));
  first?.isOver();
  open.endOf("key_a");
  expect(ended).toEqual(["second"]);
  second?.isOver();
  expect(open.credentialIds()).toEqual(["key_b"]);
});

test("the one request that ends its own credential is left", () => {
  const open = new OpenRequests();
  const ended: string[] = [];
  const own = open.add(KEY_A, () => ended.push("own"));
  open.add(KEY_A, () => ended.push("other"));
  open.endOf("key_a", own);
  expect(ended).toEqual(["other"]);
});

test("requests end when the time of their credential is over, and no others", () => {
  const open = new OpenRequests();
  const ended: string[] = [];
  const add = (name: string, expiresAt: Date | null) =>
    open.add({ credentialId: name, expiresAt }, () => ended.push(name));
  add("never", null);
  add("now", new Date(1_000));
  add("later", new Date(1_001));
  open.endExpired(999);
  expect(ended).toEqual([]);
  open.endExpired(1_000);
  expect(ended).toEqual(["now"]);
});

test("requests over a real connection are over once they are answered", async () => {
  const open = new OpenRequests();
  const server = fastify();
  server.decorateRequest("principal", null);
  server.addHook("onRequest", async (request) => {
    request.principal = KEY_A as Principal;
  });
  trackOpenRequests(server, { openRequests: open });
  const during: string[][] = [];
  server.get("/", async () => during.push(open.credentialIds()));
  const url = await server.listen({ host: "127.0.0.1", port: 0 });
  expect((await fetch(url)).status).toBe(200);
  await expect.poll(() => open.credentialIds()).toEqual([]);
  expect(during).toEqual([["key_a"]]);
  await server.close();
});
