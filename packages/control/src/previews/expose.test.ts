import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type Answer, type Control, eventually, startControl } from "../../test-support/control.ts";
import { sha256Hex } from "./secrets.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterAll(() => control.close());
beforeEach(() => {
  control.node.onNetwork = () => {};
  control.node.onPreviews = () => {};
  control.node.onStart = () => {};
});
afterEach(() => control.destroyAll());

const expose = (id: string, body: object = {}) =>
  control.ask(`POST /v1/sessions/${id}/expose`, { body: { port: 3000, ...body } });
const unexpose = (id: string, port = 3000) =>
  control.ask(`POST /v1/sessions/${id}/unexpose`, { body: { port } });
const pause = (id: string) => control.ask(`POST /v1/sessions/${id}/pause`);
const record = async (id: string) => (await control.ask(`GET /v1/sessions/${id}`)).body;
const routeOf = (id: string, port = 3000) =>
  control.node.previews.routes.find((route) => route.session_id === id && route.port === port);
const TOKEN = /^[A-Za-z0-9_-]{43}$/;

test("the first expose makes a route with a token in its URL, and the node has it when the call answers", async () => {
  const id = await control.createLive();
  const { status, body } = await expose(id);
  expect(status).toBe(200);
  expect(body).toEqual({
    session_id: id,
    port: 3000,
    preview_url: `http://3000-${id}.localhost:7401/?t=${body.ingress_token}`,
    visibility: "token",
    auth: "none",
    result: "created",
    guest_ip: "10.64.0.3",
    ingress_token: expect.stringMatching(TOKEN),
  });
  expect(routeOf(id)).toEqual({
    session_id: id,
    port: 3000,
    version: expect.any(Number),
    visibility: "token",
    token_sha256: sha256Hex(body.ingress_token),
    cookie_key: expect.stringMatching(/^[0-9a-f]{64}$/),
    wake_on_http: true,
    state: "live",
  });
  expect(control.node.networks.get(`${id}-1`)?.exposed).toEqual([3000]);
});

test("a public route with bearer has no ingress token, and answers with its bearer token once", async () => {
  const id = await control.createLive({ max_lifetime_ms: 3_600_000 });
  const asked = { visibility: "public", auth: "bearer", login_url: "https://login.example.com/?a=b" };
  const { body } = await expose(id, asked);
  expect(body).toEqual({
    session_id: id,
    port: 3000,
    preview_url: `http://3000-${id}.localhost:7401`,
    visibility: "public",
    auth: "bearer",
    result: "created",
    guest_ip: "10.64.0.3",
    auth_token: expect.stringMatching(TOKEN),
    login_url: asked.login_url,
    expires_at: expect.any(String),
  });
  const { created_at } = await record(id);
  expect(Date.parse(body.expires_at) - Date.parse(created_at)).toBe(3_600_000);
  expect(routeOf(id)).toMatchObject({
    visibility: "public",
    bearer_sha256: sha256Hex(body.auth_token),
    login_url: asked.login_url,
  });
  expect(routeOf(id)).not.toHaveProperty("token_sha256");
  const again = await expose(id, asked);
  expect(again.body).toEqual({ ...without(body, "auth_token"), result: "unchanged" });
});

test("rule 1: as it is stored it is unchanged, with the same token, and a paused session stays paused", async () => {
  const id = await control.createLive();
  const first = (await expose(id)).body;
  const { version } = routeOf(id) ?? {};
  expect((await expose(id)).body).toEqual({ ...first, result: "unchanged" });
  await pause(id);
  expect((await expose(id)).body).toEqual({ ...without(first, "guest_ip"), result: "unchanged" });
  expect((await record(id)).state).toBe("paused");
  await eventually(() => expect(routeOf(id)).toMatchObject({ version, state: "paused" }));
});

test("rule 2: a new route, or a changed one, wakes a paused session", async () => {
  const id = await control.createLive();
  await pause(id);
  expect((await expose(id)).body).toMatchObject({ result: "created", guest_ip: "10.64.0.3" });
  expect((await record(id)).state).toBe("live");
  await pause(id);
  expect((await expose(id, { auth: "bearer" })).body).toMatchObject({ result: "updated" });
  expect((await record(id)).state).toBe("live");
  expect(control.node.networks.get(`${id}-3`)?.exposed).toEqual([3000]);
});

test("rule 2: a wake that is refused refuses the expose, and nothing is stored", async () => {
  const id = await control.createLive();
  await pause(id);
  control.node.onStart = () => {
    throw new Refusal("disk_pressure");
  };
  expect(await expose(id)).toMatchObject({ status: 503, body: { code: "node_disk_pressure" } });
  control.node.onStart = () => {};
  expect(await record(id)).not.toHaveProperty("exposed_previews");
  expect((await control.sql.query("select from preview_routes where session_id = $1", [id])).rowCount).toBe(
    0,
  );
});

test("rule 3: pause and resume keep the route, and the next call answers with the new machine's address", async () => {
  const id = await control.createLive();
  const { body } = await expose(id);
  const { version } = routeOf(id) ?? {};
  await pause(id);
  await eventually(() => expect(routeOf(id)?.state).toBe("paused"));
  await control.ask(`POST /v1/sessions/${id}/resume`);
  await eventually(() => expect(routeOf(id)).toMatchObject({ state: "live", version }));
  expect(control.node.machines.get(`${id}-2`)?.spec?.network?.exposed).toEqual([3000]);
  expect((await expose(id)).body).toEqual({ ...body, result: "unchanged" });
});

test("rule 4: public and back mints a new token; a login_url keeps it; so does bearer until it goes", async () => {
  const id = await control.createLive();
  const first = (await expose(id)).body;
  const withLogin = (await expose(id, { login_url: "https://login.example.com" })).body;
  expect(withLogin).toMatchObject({ result: "updated", ingress_token: first.ingress_token });
  const withBearer = (await expose(id, { auth: "bearer" })).body;
  expect(withBearer).toMatchObject({ result: "updated", ingress_token: first.ingress_token });
  expect(withBearer).not.toHaveProperty("login_url");
  const bearerOff = (await expose(id)).body;
  expect(bearerOff.result).toBe("updated");
  expect(bearerOff.ingress_token).not.toBe(first.ingress_token);
  expect(routeOf(id)).not.toHaveProperty("bearer_sha256");
  const open = (await expose(id, { visibility: "public" })).body;
  expect(open).not.toHaveProperty("ingress_token");
  const back = (await expose(id)).body;
  expect(new Set([first.ingress_token, bearerOff.ingress_token, back.ingress_token]).size).toBe(3);
});

test("rule 5: rotate gives new tokens, and the node has forgotten the old ones when the call answers", async () => {
  const id = await control.createLive();
  const first = (await expose(id, { auth: "bearer" })).body;
  const before = routeOf(id);
  const rotated = (await expose(id, { auth: "bearer", rotate: true })).body;
  expect(rotated).toMatchObject({ result: "updated", auth_token: expect.stringMatching(TOKEN) });
  expect(rotated.ingress_token).not.toBe(first.ingress_token);
  expect(rotated.auth_token).not.toBe(first.auth_token);
  const after = routeOf(id);
  expect(after?.token_sha256).toBe(sha256Hex(rotated.ingress_token));
  expect(after?.bearer_sha256).toBe(sha256Hex(rotated.auth_token));
  expect(after?.version).toBeGreaterThan(before?.version ?? 0);
  expect(after?.cookie_key).not.toBe(before?.cookie_key);
});

test("rule 6: rotate of a public route is updated, mints nothing and keeps the URL", async () => {
  const id = await control.createLive();
  const first = (await expose(id, { visibility: "public" })).body;
  const before = routeOf(id);
  const rotated = (await expose(id, { visibility: "public", rotate: true })).body;
  expect(rotated).toEqual({ ...first, result: "updated" });
  expect(routeOf(id)).toEqual(before);
});

test.each([
  [{ port: undefined }, /^port: must be a whole number from 1 to 65535/],
  [{ port: 0 }, /^port: must be a whole number from 1 to 65535, got 0$/],
  [{ port: 65_536 }, /^port: /],
  [{ port: "80" }, /^port: /],
  [{ visibility: "private" }, /^visibility: must be one of "token", "public"/],
  [{ auth: "basic" }, /^auth: must be one of "none", "bearer"/],
  [{ rotate: "yes" }, /^rotate: must be a boolean/],
  [{ login_url: "http://login.example.com" }, /^login_url: must be an absolute https/],
  [{ login_url: "/login" }, /^login_url: /],
  [{ login_url: "https://user@login.example.com" }, /^login_url: /],
  [{ login_url: "https://login.example.com/#top" }, /^login_url: /],
  [{ login_url: "javascript:alert(1)" }, /^login_url: /],
  [{ login_url: " https://login.example.com" }, /^login_url: /],
  [{ login_url: "https://login.example.com/\r\nSet-Cookie: a=b" }, /^login_url: /],
  [{ login_url: "https://" }, /^login_url: /],
  [{ login_url: "https:///login.example.com" }, /^login_url: /],
  [{ login_url: "http://localhost.example.com" }, /^login_url: /],
  [{ login_url: `https://login.example.com/${"a".repeat(2048)}` }, /^login_url: must be at most 2048/],
])("%j is refused", async (body, error) => {
  const id = await control.createLive();
  const answer = await expose(id, body);
  expect(answer).toMatchObject({
    status: 400,
    body: { code: "validation", error: expect.stringMatching(error) },
  });
  expect(await record(id)).not.toHaveProperty("exposed_ports");
});

test.each([
  "http://localhost:3000/in",
  "http://app.localhost/",
  "http://127.0.0.1:8080/x?y=z",
  "HTTPS://Login.Example.com",
])("%s is a login_url, and is kept as it was given", async (login_url) => {
  const id = await control.createLive();
  expect((await expose(id, { login_url })).body.login_url).toBe(login_url);
  expect(routeOf(id)?.login_url).toBe(login_url);
});

test("a 33rd port is a conflict that wakes nothing; one that is exposed already is not", async () => {
  const id = await control.createLive();
  for (let port = 1; port <= 32; port++) expect((await expose(id, { port })).status).toBe(200);
  await pause(id);
  expect(await expose(id, { port: 33 })).toMatchObject({ status: 409, body: { code: "conflict" } });
  expect((await record(id)).state).toBe("paused");
  expect((await expose(id, { port: 32, rotate: true })).status).toBe(200);
  await unexpose(id, 1);
  expect((await expose(id, { port: 33 })).body.result).toBe("created");
});

test("the record shows ports, URLs without tokens, and how they are guarded", async () => {
  const id = await control.createLive();
  await expose(id, { port: 8080, visibility: "public", auth: "bearer" });
  await expose(id);
  const body = await record(id);
  expect(body).toMatchObject({
    guest_ip: "10.64.0.3",
    exposed_ports: [3000, 8080],
    exposed_previews: [
      { port: 3000, preview_url: `http://3000-${id}.localhost:7401`, visibility: "token", auth: "none" },
      { port: 8080, preview_url: `http://8080-${id}.localhost:7401`, visibility: "public", auth: "bearer" },
    ],
  });
  await pause(id);
  expect(await record(id)).not.toHaveProperty("guest_ip");
  expect((await record(id)).exposed_ports).toEqual([3000, 8080]);
});

test("unexpose closes the port before it answers, wakes nothing, and says whether there was one", async () => {
  const id = await control.createLive();
  const first = (await expose(id)).body;
  expect(await unexpose(id)).toMatchObject({ status: 200, body: { ok: true } });
  expect(routeOf(id)).toBeUndefined();
  expect(control.node.networks.get(`${id}-1`)?.exposed).toEqual([]);
  expect((await unexpose(id)).body).toEqual({ ok: false });
  const again = (await expose(id)).body;
  expect(again.result).toBe("created");
  expect(again.ingress_token).not.toBe(first.ingress_token);
  await pause(id);
  expect((await unexpose(id)).body).toEqual({ ok: true });
  expect(routeOf(id)).toBeUndefined();
  expect((await record(id)).state).toBe("paused");
  await control.ask(`POST /v1/sessions/${id}/resume`);
  expect(control.node.machines.get(`${id}-2`)?.spec?.network?.exposed).toEqual([]);
});

test("no credential of a closed route opens the next route of its port", async () => {
  const id = await control.createLive();
  await expose(id);
  const before = routeOf(id);
  await unexpose(id);
  await expose(id);
  const after = routeOf(id);
  expect(after?.version).toBeGreaterThan(before?.version ?? 0);
  expect(after?.cookie_key).not.toBe(before?.cookie_key);
  expect(after?.token_sha256).not.toBe(before?.token_sha256);
});

test("children of a fork and sessions from a checkpoint have no previews", async () => {
  const id = await control.createLive();
  await expose(id);
  const { body: fork } = await control.ask(`POST /v1/sessions/${id}/fork`);
  const { body: checkpoint } = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
  const { body: started } = await control.ask(`POST /v1/checkpoints/${checkpoint.checkpoint_id}/sessions`);
  for (const child of [fork.children[0], started.session_id]) {
    expect(await record(child)).not.toHaveProperty("exposed_previews");
    expect(control.node.machines.get(`${child}-1`)?.spec?.network?.exposed).toEqual([]);
  }
  await control.ask(`POST /v1/sessions/${id}/restore`, { body: { checkpoint_id: checkpoint.checkpoint_id } });
  expect((await record(id)).exposed_ports).toEqual([3000]);
  expect(control.node.networks.get(`${id}-2`)?.exposed).toEqual([3000]);
});

test("a change that the node does not confirm is answered with 503, kept, and applied later", async () => {
  const id = await control.createLive();
  control.node.onPreviews = () => {
    throw new Refusal("network_unconfirmed");
  };
  const answer = await expose(id, { auth: "bearer" });
  expect(answer).toMatchObject({ status: 503, body: { code: "session_node_unavailable" } });
  control.node.onPreviews = () => {};
  await eventually(() => expect(routeOf(id)?.state).toBe("live"));
  // The bearer token was not delivered: the next call makes another one.
  const second = (await expose(id, { auth: "bearer" })).body;
  expect(second).toMatchObject({ result: "updated", auth_token: expect.stringMatching(TOKEN) });
  expect(routeOf(id)?.bearer_sha256).toBe(sha256Hex(second.auth_token));
  expect((await expose(id, { auth: "bearer" })).body.result).toBe("unchanged");
});

test("of concurrent calls with bearer one gets the token, and that token is in force", async () => {
  const id = await control.createLive();
  control.node.onPreviews = () => new Promise((resolve) => setTimeout(resolve, 50));
  const asked = { visibility: "public", auth: "bearer" };
  const answers = await Promise.all(Array.from({ length: 5 }, () => expose(id, asked)));
  expect(answers.map(({ body }) => body.result).sort()).toEqual(["created", ...Array(4).fill("unchanged")]);
  const tokens = answers.flatMap(({ body }) => body.auth_token ?? []);
  expect(tokens.map(sha256Hex)).toEqual([routeOf(id)?.bearer_sha256]);
});

test("concurrent calls for one port make one route", async () => {
  const id = await control.createLive();
  const answers = await Promise.all(Array.from({ length: 5 }, () => expose(id)));
  expect(answers.map(({ body }: Answer) => body.result).sort()).toEqual([
    "created",
    ...Array(4).fill("unchanged"),
  ]);
  expect(new Set(answers.map(({ body }: Answer) => body.ingress_token)).size).toBe(1);
});

test("neither token can be read from the database", async () => {
  const id = await control.createLive();
  const { body } = await expose(id, { auth: "bearer" });
  const { rows } = await control.sql.query(
    "select encode(sealed_token, 'escape') as sealed, preview_routes::text as row from preview_routes where session_id = $1",
    [id],
  );
  const text = JSON.stringify(rows);
  for (const secret of [body.ingress_token, body.auth_token]) {
    expect(text).not.toContain(secret);
    expect(text).not.toContain(Buffer.from(secret).toString("hex"));
  }
});

test("a sealed token that was copied to another route opens nothing", async () => {
  const id = await control.createLive();
  await expose(id, { port: 1 });
  await expose(id, { port: 2 });
  await control.sql.query(
    `update preview_routes set sealed_token = other.sealed_token from preview_routes as other
      where preview_routes.session_id = $1 and preview_routes.port = 2
        and other.session_id = $1 and other.port = 1`,
    [id],
  );
  expect((await expose(id, { port: 1 })).status).toBe(200);
  expect(await expose(id, { port: 2 })).toMatchObject({ status: 500, body: { code: "internal" } });
});

test("sessions of others, and those that ended, are not found", async () => {
  const id = await control.createLive();
  const other = await control.addKey();
  for (const verb of ["expose", "unexpose"]) {
    const call = `POST /v1/sessions/${id}/${verb}`;
    expect((await control.ask(call, { key: other, body: { port: 3000 } })).status).toBe(404);
  }
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect((await expose(id)).status).toBe(404);
  expect((await unexpose(id)).status).toBe(404);
});

function without(body: Record<string, unknown>, field: string): Record<string, unknown> {
  const { [field]: _gone, ...rest } = body;
  return rest;
}
