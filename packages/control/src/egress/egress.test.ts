import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

let control: Control;
beforeAll(async () => {
  control = await startControl();
});
afterAll(() => control.close());
beforeEach(() => {
  control.node.onNetwork = () => {};
});
afterEach(() => control.destroyAll());

const set = (id: string, body: unknown) => control.ask(`POST /v1/sessions/${id}/egress`, { body });
const get = (id: string) => control.ask(`GET /v1/sessions/${id}/egress`);
const networkOf = (id: string, incarnation = 1) => control.node.networks.get(`${id}-${incarnation}`);
const DENY = { mode: "deny", allow: ["api.example.com", "8.8.4.4:22"] };

test("a session without a policy has full egress, and starts with it", async () => {
  const id = await control.createLive();
  expect((await get(id)).body).toEqual({ session_id: id, mode: "allow", allow: [] });
  expect(networkOf(id)).toEqual({ generation: 1, egress: { mode: "allow", allow: [] }, exposed: [] });
});

test("a policy at create is normalised, echoed, and in the machine's start", async () => {
  const egress = { mode: "deny", allow: ["API.example.com.", "api.example.com", "münchen.de:8443"] };
  const id = await control.createLive({ egress });
  const normal = { mode: "deny", allow: ["api.example.com", "xn--mnchen-3ya.de:8443"] };
  expect((await get(id)).body).toEqual({ session_id: id, ...normal });
  expect((await control.ask(`GET /v1/sessions/${id}`)).body.egress).toEqual(normal);
  expect(control.node.machines.get(`${id}-1`)?.spec?.network).toEqual({
    generation: 1,
    egress: normal,
    exposed: [],
  });
});

test("a new policy of a live session is in force when the call answers", async () => {
  const id = await control.createLive();
  const answer = await set(id, DENY);
  expect(answer).toMatchObject({ status: 200, body: { session_id: id, ...DENY } });
  expect(networkOf(id)).toEqual({ generation: 2, egress: DENY, exposed: [] });
  expect((await get(id)).body).toEqual({ session_id: id, ...DENY });
});

test("the call waits for the node's confirmation", async () => {
  const id = await control.createLive();
  const held = Promise.withResolvers<void>();
  const asked = Promise.withResolvers<void>();
  control.node.onNetwork = () => {
    asked.resolve();
    return held.promise;
  };
  let isAnswered = false;
  const answer = set(id, DENY).finally(() => {
    isAnswered = true;
  });
  await asked.promise;
  await get(id);
  expect(isAnswered).toBe(false);
  held.resolve();
  expect((await answer).status).toBe(200);
});

test("a POST replaces the whole policy; no list is an empty one", async () => {
  const id = await control.createLive({ egress: DENY });
  expect((await set(id, { mode: "deny" })).body).toEqual({ session_id: id, mode: "deny", allow: [] });
  expect(networkOf(id)?.egress).toEqual({ mode: "deny", allow: [] });
});

test.each([
  [undefined, /^mode: must be one of/],
  [{}, /^mode: must be one of "allow", "deny", got nothing$/],
  [{ mode: "alow" }, /^mode: /],
  [{ mode: null }, /^mode: /],
  [{ mode: "deny", alow: [] }, "alow: unknown field; this object takes no others"],
  [{ mode: "deny", allow: null }, /^allow: must be an array/],
  [{ mode: "deny", allow: "a.example.com" }, /^allow: must be an array/],
  [{ mode: "deny", allow: [1] }, /^allow\[0\]: must be a string/],
  [{ mode: "deny", allow: ["a.example.com", "http://x/"] }, /^allow\[1\]: must be host.*"http:\/\/x\/"$/],
  [{ mode: "allow", allow: ["10.0.0.0/8"] }, /^allow\[0\]: must be a single address/],
  [
    { mode: "deny", allow: Array(257).fill("a.example.com") },
    "allow: must hold at most 256 entries, got an array of 257",
  ],
])("%j is refused and changes nothing", async (body, error) => {
  const id = await control.createLive({ egress: DENY });
  const answer = await set(id, body);
  expect(answer).toMatchObject({ status: 400, body: { code: "validation" } });
  if (typeof error === "string") expect(answer.body.error).toBe(error);
  else expect(answer.body.error).toMatch(error);
  expect((await get(id)).body).toEqual({ session_id: id, ...DENY });
  expect(networkOf(id)?.generation).toBe(1);
});

test("a paused session stores its policy, is not woken, and starts with it", async () => {
  const id = await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  expect(await set(id, DENY)).toMatchObject({ status: 200, body: DENY });
  expect((await control.ask(`GET /v1/sessions/${id}`)).body).toMatchObject({ state: "paused", egress: DENY });
  await control.ask(`POST /v1/sessions/${id}/resume`);
  expect(control.node.machines.get(`${id}-2`)?.spec?.network?.egress).toEqual(DENY);
});

test.each([["network_unconfirmed"], ["internal"]] as const)(
  "after an answer of %s the row keeps the policy, and the sweep applies it",
  async (code) => {
    const id = await control.createLive();
    control.node.onNetwork = () => {
      throw new Refusal(code);
    };
    const answer = await set(id, DENY);
    expect([answer.status, answer.body.code]).toEqual(
      code === "internal" ? [500, "internal"] : [503, "session_node_unavailable"],
    );
    expect((await get(id)).body).toEqual({ session_id: id, ...DENY });
    control.node.onNetwork = () => {};
    await eventually(() => expect(networkOf(id)?.egress).toEqual(DENY));
  },
);

test("a node that is away gives 503, and gets the policy once it is back", async () => {
  const id = await control.createLive();
  await control.node.goDown();
  const answer = await set(id, DENY);
  await control.node.listen();
  expect(answer).toMatchObject({ status: 503, body: { code: "session_node_unavailable" } });
  expect(answer.headers["retry-after"]).toBe("5");
  await eventually(() => expect(networkOf(id)?.egress).toEqual(DENY));
});

test("of concurrent changes the last one in the row is in force", async () => {
  const id = await control.createLive();
  const hosts = ["a", "b", "c", "d", "e", "f"].map((name) => `${name}.example.com`);
  const answers = await Promise.all(hosts.map((host) => set(id, { mode: "deny", allow: [host] })));
  expect(answers.map(({ status, body }) => [status, body.allow[0]])).toEqual(
    hosts.map((host) => [200, host]),
  );
  const { body } = await get(id);
  await eventually(() => expect(networkOf(id)?.egress.allow).toEqual(body.allow));
  expect(networkOf(id)?.generation).toBe(1 + hosts.length);
});

test("a change during a wake waits for it and is in force on the machine that woke", async () => {
  const id = await control.createLive();
  await control.ask(`POST /v1/sessions/${id}/pause`);
  const held = Promise.withResolvers<void>();
  const started = Promise.withResolvers<void>();
  control.node.onStart = async () => {
    started.resolve();
    await held.promise;
  };
  const wake = control.ask(`POST /v1/sessions/${id}/resume`);
  await started.promise;
  const change = set(id, DENY);
  await new Promise((resolve) => setTimeout(resolve, 50));
  held.resolve();
  control.node.onStart = () => {};
  expect((await wake).status).toBe(200);
  expect((await change).status).toBe(200);
  expect(networkOf(id, 2)?.egress).toEqual(DENY);
  const starts = control.node.machines.get(`${id}-2`)?.spec?.network;
  expect(starts?.egress).toEqual({ mode: "allow", allow: [] });
});

test.each([DENY, { ...DENY, mode: "allow" }])(
  "a pause and a fork keep $mode with its list",
  async (egress) => {
    const id = await control.createLive({ egress });
    await control.ask(`POST /v1/sessions/${id}/pause`);
    expect((await get(id)).body).toEqual({ session_id: id, ...egress });
    await control.ask(`POST /v1/sessions/${id}/resume`);
    expect(networkOf(id, 2)?.egress).toEqual(egress);
    const [child] = (await control.ask(`POST /v1/sessions/${id}/fork`)).body.children;
    expect(networkOf(child)).toEqual({ generation: 1, egress, exposed: [] });
    expect((await get(child)).body).toEqual({ session_id: child, ...egress });
  },
);

test("checkpoint and restore keep the policy", async () => {
  const id = await control.createLive({ egress: DENY });
  const { body: checkpoint } = await control.ask(`POST /v1/sessions/${id}/checkpoints`);
  const { body: started } = await control.ask(`POST /v1/checkpoints/${checkpoint.checkpoint_id}/sessions`);
  expect(networkOf(started.session_id)?.egress).toEqual(DENY);
  const later = { mode: "deny", allow: ["later.example.com"] };
  await set(id, later);
  await control.ask(`POST /v1/sessions/${id}/restore`, { body: { checkpoint_id: checkpoint.checkpoint_id } });
  expect(networkOf(id, 2)?.egress).toEqual(later);
});

test("a node that knows a later generation than the row is overtaken by the sweep", async () => {
  const id = await control.createLive();
  const known = networkOf(id);
  if (!known) throw new Error("the machine has no network");
  control.node.networks.set(`${id}-1`, { ...known, generation: 4 });
  expect(await set(id, DENY)).toMatchObject({ status: 503, body: { code: "session_node_unavailable" } });
  await eventually(() => expect(networkOf(id)?.egress).toEqual(DENY));
});

test("sessions of others, and those that ended, are not found", async () => {
  const id = await control.createLive();
  const other = await control.addKey();
  for (const call of [
    `GET /v1/sessions/${id}/egress`,
    `GET /v1/sessions/${id}/egress-cap`,
    `GET /v1/sessions/${id}/egress-log`,
  ])
    expect((await control.ask(call, { key: other })).status).toBe(404);
  expect((await control.ask(`POST /v1/sessions/${id}/egress`, { key: other, body: DENY })).status).toBe(404);
  await control.ask(`DELETE /v1/sessions/${id}`);
  expect((await get(id)).status).toBe(404);
  expect((await set(id, DENY)).status).toBe(404);
});

test("a failed session shows neither policy nor cap, and neither can be set", async () => {
  control.node.onStart = () => {
    throw new Refusal("disk_pressure");
  };
  const id = await control.create({ egress: DENY });
  await control.until(id, "failed");
  control.node.onStart = () => {};
  const refused = { status: 409, body: { code: "conflict" } };
  expect(await get(id)).toMatchObject(refused);
  expect(await control.ask(`GET /v1/sessions/${id}/egress-cap`)).toMatchObject(refused);
  expect(await set(id, DENY)).toMatchObject(refused);
});

test("after a session's lifetime its cap can be read, and its policy cannot", async () => {
  const id = await control.createLive({ egress: DENY });
  await control.ask(`POST /v1/sessions/${id}/pause`);
  await control.sql.query("update sessions set state = 'lifetime_expired' where id = $1", [id]);
  expect(await get(id)).toMatchObject({ status: 410, body: { code: "session_ended" } });
  expect((await control.ask(`GET /v1/sessions/${id}/egress-cap`)).status).toBe(200);
});
