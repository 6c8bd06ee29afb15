/** The limit on wrong credentials, at every place that reads one. */
import { once } from "node:events";
import { request } from "node:http";
import { json } from "node:stream/consumers";
import { afterEach, beforeEach, expect, test } from "vitest";
import { type Control, startControl } from "../../test-support/control.ts";
import { createDatabase, silentLog } from "../../test-support/database.ts";
import { connect, refused } from "../../test-support/terminal-client.ts";
import { newApiKey, newScopedToken } from "../access/api-key.ts";
import { createApp } from "../app.ts";

const PER_MINUTE = 3;

let control: Control;
beforeEach(async () => {
  control = await startControl({ wrongCredentialsPerMinute: PER_MINUTE });
});
afterEach(() => control.close());

const status = async (key: string | null, url = "GET /v1/org") => (await control.ask(url, { key })).status;

async function useUp(): Promise<void> {
  for (let sent = 0; sent < PER_MINUTE; sent++) expect(await status(newApiKey())).toBe(401);
}

test("a wrong credential past the limit is 429 with Retry-After, whatever is wrong with it and whatever it asks for", async () => {
  await useUp();
  const { body, headers } = await control.ask("GET /v1/org", { key: newApiKey() });
  expect(body).toEqual({
    code: "rate_limited",
    error:
      "Authorization: the API key is unknown, revoked or expired; your address has sent more than 3 wrong credentials within a minute",
  });
  const retryAfter = Number(headers["retry-after"]);
  expect(retryAfter).toBeGreaterThan(0);
  expect(retryAfter).toBeLessThanOrEqual(60);
  for (const key of [newScopedToken(), "viv_short", "none"]) expect(await status(key)).toBe(429);
  for (const call of ["POST /v1/sessions", "GET /v1/no/such/path", "GET /v1/org?a=%ff", "GET /v1/%ff"])
    expect([call, await status(newApiKey(), call)]).toEqual([call, 429]);
});

test("a right credential works from the same address, also for the first time, and one that is missing is 401", async () => {
  const [token, other] = [await tokenOf(await control.createLive()), await control.addKey()];
  await useUp();
  expect(await status(newApiKey())).toBe(429);
  for (const right of [control.key, other, token]) expect(await status(right, "GET /v1/whoami")).toBe(200);
  expect(await status(null)).toBe(401);
  expect(await status(null, "GET /v1/healthz")).toBe(200);
  // Its credential is right, so its answer is about the rest of the request.
  expect(await status(other, "GET /v1/no/such/path")).toBe(404);
});

test("requests without a credential, and with a right one, do not count", async () => {
  for (let sent = 0; sent < 2 * PER_MINUTE; sent++) {
    expect(await status(null)).toBe(401);
    expect(await status(control.key)).toBe(200);
  }
  await useUp();
  expect(await status(newApiKey())).toBe(429);
});

test("an expired or revoked key counts like an unknown one", async () => {
  const { body } = await control.ask("POST /v1/api-keys", { body: { name: "old" } });
  await control.ask(`DELETE /v1/api-keys/${body.id}`);
  for (const expected of [401, 401, 401, 429]) expect(await status(body.key)).toBe(expected);
});

test("two Authorization headers count, although each is right", async () => {
  const { port } = new URL(await control.app.server.listen({ host: "127.0.0.1", port: 0 }));
  const right = ["authorization", `Bearer ${control.key}`];
  const twice = async () => {
    const call = request({ port, path: "/v1/org", headers: ["host", "x", ...right, ...right] }).end();
    const [response] = await once(call, "response");
    const { error } = (await json(response)) as { error: string };
    expect(error).toMatch(/^Authorization: must be sent once/);
    return response.statusCode;
  };
  for (const expected of [401, 401, 401, 429]) expect(await twice()).toBe(expected);
});

test.each(["pty", "tunnel"])(
  "the WebSocket of a %s is refused alike, and opens with a right key",
  async (kind) => {
    await control.app.server.listen({ host: "127.0.0.1", port: 0 });
    const path = `/v1/sessions/${await control.createLive()}/${kind}`;
    const wrong = () => refused(control, path, { key: newApiKey() });
    for (let sent = 0; sent < PER_MINUTE; sent++) expect((await wrong()).status).toBe(401);
    const { status: past, headers, body } = await wrong();
    expect([past, body.code]).toEqual([429, "rate_limited"]);
    expect(Number(headers["retry-after"])).toBeGreaterThan(0);
    const client = await connect(control, path).opened();
    client.webSocket.terminate();
    // The same count as that of requests.
    expect(await status(newApiKey())).toBe(429);
  },
);

test("addresses do not count for each other", async () => {
  const from = async (remoteAddress: string) => {
    const headers = { authorization: `Bearer ${newApiKey()}` };
    return (await control.app.server.inject({ url: "/v1/org", remoteAddress, headers })).statusCode;
  };
  for (const expected of [401, 401, 401, 429]) expect(await from("192.0.2.7")).toBe(expected);
  expect(await from("192.0.2.8")).toBe(401);
  for (const expected of [401, 401, 401, 429])
    expect(await from(`2001:db8::${Math.ceil(Math.random() * 9999)}`)).toBe(expected);
  expect(await from("2001:db8:0:1::1")).toBe(401);
});

test("a forwarded address of an unknown proxy is not believed", async () => {
  const from = async (forwarded: string) => {
    const headers = { authorization: `Bearer ${newApiKey()}`, "x-forwarded-for": forwarded };
    return (await control.app.server.inject({ url: "/v1/org", headers })).statusCode;
  };
  for (const expected of [401, 401, 401, 429])
    expect(await from(`192.0.2.${Math.ceil(Math.random() * 200)}`)).toBe(expected);
});

test("a service that is not configured has the limit of the interface", async () => {
  const { nodeSocket, controlDir } = control.settings;
  const databaseUrl = await createDatabase();
  const app = await createApp({ databaseUrl, nodeSocket, controlDir }, silentLog);
  const headers = { authorization: `Bearer ${newApiKey()}` };
  const statuses = [];
  for (let sent = 0; sent < 62; sent++)
    statuses.push((await app.server.inject({ url: "/v1/org", headers })).statusCode);
  expect(statuses).toEqual([...Array(60).fill(401), 429, 429]);
  await app.close();
});

async function tokenOf(session: string): Promise<string> {
  const call = `POST /v1/sessions/${session}/tokens`;
  return (await control.ask(call, { body: { ttl_seconds: 60 } })).body.token;
}
