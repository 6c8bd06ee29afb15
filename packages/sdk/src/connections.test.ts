/** `client.connections` and `session.connections`: requests, answers, and which of them are repeated. */
import type { ServerResponse } from "node:http";
import { expect, test } from "vitest";
import { bodyOf, json, serve } from "../test-support/server.ts";
import type { VivariumError } from "./errors.ts";

const PATH = "/v1/sessions/s1/connections";
const at = "2027-03-01T09:30:00.125Z";
const origin = "https://api.example.com";
const status = {
  name: "payments",
  origin,
  state: "active",
  auth_type: "bearer",
  header_name: "Authorization",
  allow: { methods: ["GET"], paths: ["/v1/*"] },
  created_at: at,
  expires_at: at,
};
const authentication = { type: "bearer", secret: "sk_test" } as const;
const body = { origin, authentication, allow: { methods: ["GET"], paths: ["/v1/*"] }, ttl_seconds: 60 };

/** Answers with `answer`, by the number of the request, and records the requests. */
async function answering(answer: (response: ServerResponse, method: string, count: number) => void) {
  const seen: unknown[] = [];
  const served = await serve(async (request, response) => {
    const text = (await bodyOf(request)).toString();
    seen.push([request.method, request.url, ...(text === "" ? [] : [JSON.parse(text)])]);
    answer(response, request.method ?? "", seen.length);
  });
  return { ...served, seen };
}

function answerOf(response: ServerResponse, method: string): void {
  if (method === "DELETE") response.writeHead(204).end();
  else if (method === "GET") json(response, { connections: [status] });
  else json(response, status, method === "POST" ? 201 : 200);
}

test("the client and the session send the requests of the interface and return its answers", async () => {
  const { client, session, seen } = await answering(answerOf);
  expect(await client.connections.list("s1")).toEqual({ connections: [status] });
  expect(await client.connections.create("s1", { name: "payments", ...body })).toEqual(status);
  expect(await client.connections.replace("s1", "payments", body)).toEqual(status);
  expect(await client.connections.revoke("s1", "payments")).toBeUndefined();
  const ofClient = seen.splice(0);
  expect(ofClient).toEqual([
    ["GET", PATH],
    ["POST", PATH, { name: "payments", ...body }],
    ["PUT", `${PATH}/payments`, body],
    ["DELETE", `${PATH}/payments`],
  ]);
  expect(await session.connections.list()).toEqual({ connections: [status] });
  expect(await session.connections.create({ name: "payments", ...body })).toEqual(status);
  expect(await session.connections.replace("payments", body)).toEqual(status);
  expect(await session.connections.revoke("payments")).toBeUndefined();
  expect(seen).toEqual(ofClient);
});

test("a name cannot lead to another path", async () => {
  const { session, seen } = await answering(answerOf);
  await session.connections.revoke("../tokens/1?x");
  expect(seen).toEqual([["DELETE", `${PATH}/..%2Ftokens%2F1%3Fx`]]);
  await expect(session.connections.revoke("..")).rejects.toMatchObject({ code: "validation" });
});

test("a create is not repeated when its answer was lost, and is when the service says that nothing happened", async () => {
  const lost = await answering((response) => response.socket?.destroy());
  await expect(lost.session.connections.create({ name: "payments", ...body })).rejects.toMatchObject({
    code: "connection_failed",
  });
  expect(lost.seen).toHaveLength(1);
  const busy = await answering((response, method, count) => {
    if (count > 1) return answerOf(response, method);
    json(response, { error: "busy", code: "session_node_unavailable" }, 503, { "retry-after": "2" });
  });
  expect(await busy.session.connections.create({ name: "payments", ...body })).toEqual(status);
  expect(busy.waits).toEqual([2000]);
});

test("a replacement and a revocation are repeated when their answer was lost", async () => {
  const { session, seen } = await answering((response, method, count) => {
    if (count % 2 === 1) response.socket?.destroy();
    else answerOf(response, method);
  });
  expect(await session.connections.replace("payments", body)).toEqual(status);
  await session.connections.revoke("payments");
  expect(seen).toHaveLength(4);
});

test("a revocation of an unknown name rejects, also after a lost answer", async () => {
  const { session } = await answering((response, _method, count) => {
    if (count === 1) response.socket?.destroy();
    else json(response, { error: "the session has no such Connection", code: "not_found" }, 404);
  });
  await expect(session.connections.revoke("paymnets")).rejects.toMatchObject({ code: "not_found" });
});

test("no error contains the secret", async () => {
  const { session } = await answering((response) => response.writeHead(502).end("<html>bad gateway"));
  const failure: VivariumError = await session.connections
    .create({ name: "payments", ...body })
    .catch((error) => error);
  expect(failure).toMatchObject({ code: "error", status: 502 });
  expect(`${failure.stack} ${JSON.stringify(failure)}`).not.toContain("sk_test");
});
