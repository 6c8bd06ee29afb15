import { expect, test } from "vitest";
import { bodyOf, json, serve } from "../../test-support/server.ts";

const SESSION = "/v1/sessions/s1";
const policy = { session_id: "s1", mode: "deny", allow: ["pypi.org"] };
const cap = {
  session_id: "s1",
  egress_cap_bytes: 1024,
  today_bytes: 7,
  date: "2027-03-01",
  wake_on_http: true,
};
const exposed = {
  session_id: "s1",
  port: 8000,
  preview_url: "http://8000-s1.localhost:7401/?t=tok",
  visibility: "token",
  auth: "none",
  result: "created",
  ingress_token: "tok",
};
const line = (host: string) => ({
  at: "2027-03-01T09:30:00.125Z",
  kind: "tls",
  host,
  port: 443,
  decision: "denied",
  reason: "name_not_allowed",
  bytes_out: 0,
  bytes_in: 0,
  count: 1,
});

/** Answers every request with this, and records the requests. */
async function answering(answer: unknown) {
  const seen: unknown[] = [];
  const served = await serve(async (request, response) => {
    const body = (await bodyOf(request)).toString();
    seen.push([request.method, request.url, ...(body === "" ? [] : [JSON.parse(body)])]);
    json(response, answer);
  });
  return { ...served, seen };
}

test("a policy is read, and replaced as a whole", async () => {
  const { session, seen } = await answering(policy);
  expect(await session.egress.get()).toEqual(policy);
  expect(await session.egress.set({ mode: "deny", allow: ["PyPI.org."] })).toEqual(policy);
  await session.egress.set({ mode: "allow" });
  expect(seen).toEqual([
    ["GET", `${SESSION}/egress`],
    ["POST", `${SESSION}/egress`, { mode: "deny", allow: ["PyPI.org."] }],
    ["POST", `${SESSION}/egress`, { mode: "allow" }],
  ]);
});

test("a cap is read, set and cleared", async () => {
  const { session, seen } = await answering(cap);
  expect(await session.cap.get()).toEqual(cap);
  expect(await session.cap.set(1024)).toEqual(cap);
  await session.cap.set(0, { wakeOnHttp: false });
  expect(seen).toEqual([
    ["GET", `${SESSION}/egress-cap`],
    ["PATCH", SESSION, { egress_cap_bytes: 1024 }],
    ["PATCH", SESSION, { egress_cap_bytes: 0, wake_on_http: false }],
  ]);
});

test("the organisation's cap is read, set, cleared and given back", async () => {
  const orgCap = {
    ...{ cap_bytes: 1024, override: true, default_cap_bytes: 0 },
    today_bytes: 7,
    date: "2027-03-01",
  };
  const { client, seen } = await answering(orgCap);
  expect(await client.org.cap.get()).toEqual(orgCap);
  expect(await client.org.cap.set(1024)).toEqual(orgCap);
  await client.org.cap.set(0);
  await client.org.cap.set(null);
  const path = "/v1/org/egress-cap";
  expect(seen).toEqual([
    ["GET", path],
    ["PUT", path, { cap_bytes: 1024 }],
    ["PUT", path, { cap_bytes: 0 }],
    ["PUT", path, { cap_bytes: null }],
  ]);
});

test("a capped organisation is one error, and nothing is sent again", async () => {
  let requests = 0;
  const { client } = await serve((_request, response) => {
    requests++;
    json(response, { error: "the sessions of your organisation have sent …", code: "egress_capped" }, 409);
  });
  await expect(client.sessions.create()).rejects.toMatchObject({ code: "egress_capped", retryable: false });
  expect(requests).toBe(1);
});

test("a port is exposed as asked for, and closed", async () => {
  const opening = await answering(exposed);
  expect(await opening.session.expose(8000)).toEqual(exposed);
  const loginUrl = "https://login.example.com/";
  await opening.session.expose(80, { visibility: "public", auth: "bearer", loginUrl, rotate: true });
  expect(opening.seen).toEqual([
    ["POST", `${SESSION}/expose`, { port: 8000 }],
    [
      "POST",
      `${SESSION}/expose`,
      { port: 80, visibility: "public", auth: "bearer", login_url: loginUrl, rotate: true },
    ],
  ]);
  const closing = await answering({ ok: false });
  expect(await closing.session.unexpose(8000)).toBe(false);
  expect(closing.seen).toEqual([["POST", `${SESSION}/unexpose`, { port: 8000 }]]);
});

test("the log goes through all pages, and stops asking when the loop is left", async () => {
  const asked: (string | undefined)[] = [];
  const { session } = await serve((request, response) => {
    asked.push(request.url);
    const isLast = request.url?.includes("cursor=");
    json(
      response,
      isLast
        ? { entries: [line("c.example")] }
        : { entries: [line("a.example"), line("b.example")], next_cursor: "n" },
    );
  });
  const since = new Date("2027-03-01T09:00:00Z");
  const filter = { since, decision: "denied", host: "a.example", pageSize: 2 } as const;
  const hosts = (await Array.fromAsync(session.egress.log(filter))).map(({ host }) => host);
  expect(hosts).toEqual(["a.example", "b.example", "c.example"]);
  const query = "since=2027-03-01T09%3A00%3A00.000Z&decision=denied&host=a.example&limit=2";
  expect(asked).toEqual([`${SESSION}/egress-log?${query}`, `${SESSION}/egress-log?${query}&cursor=n`]);
  for await (const { host } of session.egress.log()) if (host === "b.example") break;
  expect(asked.slice(2)).toEqual([`${SESSION}/egress-log`]);
});

test("a refusal says which entry, and is not sent again", async () => {
  let requests = 0;
  const refusal = { error: "allow[1]: must not be an IPv6 address", code: "validation" };
  const { session } = await serve((_request, response) => {
    requests++;
    json(response, refusal, 400);
  });
  await expect(session.egress.set({ mode: "deny", allow: ["a.example", "::1"] })).rejects.toMatchObject({
    code: "validation",
    message: expect.stringContaining("allow[1]"),
  });
  expect(requests).toBe(1);
});

test("every call ends when its signal aborts", async () => {
  const { client, session } = await serve(() => {});
  const signal = () => AbortSignal.timeout(50);
  const calls = [
    () => session.egress.get({ signal: signal() }),
    () => session.egress.set({ mode: "deny" }, { signal: signal() }),
    () => Array.fromAsync(session.egress.log({}, { signal: signal() })),
    () => session.cap.get({ signal: signal() }),
    () => session.cap.set(1, { signal: signal() }),
    () => client.org.cap.get({ signal: signal() }),
    () => client.org.cap.set(1, { signal: signal() }),
    () => session.expose(1, { signal: signal() }),
    () => session.unexpose(1, { signal: signal() }),
    () => session.preview(1, { signal: signal() }),
  ];
  for (const call of calls) await expect(call()).rejects.toMatchObject({ name: "TimeoutError" });
});
