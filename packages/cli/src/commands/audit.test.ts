/** `viv audit`: what it asks the service, and what it prints. */
import { expect, test } from "vitest";
import { inOwnDirectories, respond, S1, type Seen, serve, viv } from "../../test-support/program.ts";

inOwnDirectories();

const at = "2027-01-01T10:00:00.000Z";
const hash = "a".repeat(64);
const entry = {
  id: "aud_1",
  at,
  actor: { kind: "api_key", id: "key_1" },
  action: "key.create",
  target: "key_2",
  outcome: "ok",
  request_id: "req_1",
  ip: "127.0.0.1",
  meta: { name: "ci \u001b[31m" },
};
const denied = {
  ...entry,
  id: "aud_2",
  action: "session.destroy",
  outcome: "denied",
  code: "forbidden",
  meta: {},
};
const anchor = { seq: 0, hash: "0".repeat(64), at };
const head = { seq: 2, hash, at };
const step = { findings: [], checked: 2, waiting: 0, before_chain: 0, anchor, head };

const list = (entries: object[]) =>
  serve((_request, response) => respond(response, 200, { entries, next_cursor: undefined }));
const verification = (...steps: object[]) =>
  serve((_request: Seen, response) => respond(response, 200, steps.shift() ?? {}));

test("audit alone lists: one entry a line, with its outcome and without control characters", async () => {
  const { url, seen } = await list([entry, denied]);
  const { code, out } = await viv(url, ["audit"]);
  expect([code, out]).toEqual([
    0,
    `${at}  key.create  ok  key_2  by key_1  name="ci \\u001b[31m"\n${at}  session.destroy  denied:forbidden  key_2  by key_1\n`,
  ]);
  expect(seen.map(({ url: path }) => path)).toEqual(["/v1/audit?limit=50"]);
});

test("audit ls sends its filters, and prints lines of JSON", async () => {
  const { url, seen } = await list([entry]);
  const filters = ["--actor", "key_1", "--action", "key.create", "--target", "key_2", "--session", S1];
  const times = ["--since", at, "--until", "2027-01-02T10:00:00Z"];
  const { out } = await viv(url, ["audit", "ls", ...filters, ...times, "--limit", "3", "--json"]);
  expect(JSON.parse(out)).toEqual(entry);
  expect(Object.fromEntries(new URL(`http://x${seen.at(-1)?.url}`).searchParams)).toEqual({
    ...{ actor: "key_1", action: "key.create", target: "key_2", session_id: S1, limit: "3" },
    ...{ since: at, until: "2027-01-02T10:00:00.000Z" },
  });
});

test("audit verify goes through all steps, says how far the chain reaches, and exits with 0", async () => {
  const { url, seen } = await verification({ ...step, next_cursor: "more" }, { ...step, waiting: 1 });
  const { code, out } = await viv(url, ["audit", "verify"]);
  expect([code, out]).toEqual([
    0,
    `the audit log is whole\nlinks 1 to 2, the newest of ${at}\nhead  2.${hash}\n1 entries of the last seconds are not in the chain yet\n`,
  ]);
  expect(seen.map(({ url: path }) => path)).toEqual(["/v1/audit/verify", "/v1/audit/verify?cursor=more"]);
});

test("audit verify prints what was found, and exits with 1", async () => {
  const finding = {
    kind: "entry_changed",
    message: "the entry is not what was written",
    entry_id: "aud_1",
    seq: 2,
  };
  const { url } = await verification({ ...step, findings: [finding] });
  const { code, out } = await viv(url, ["audit", "verify"]);
  expect(code).toBe(1);
  expect(out).toMatch(
    /^entry_changed {2}aud_1, link 2 {2}the entry is not what was written\nthe audit log was changed\n/,
  );
  const again = await verification({ ...step, findings: [finding] });
  const json = await viv(again.url, ["audit", "verify", "--json"]);
  expect([json.code, JSON.parse(json.out)]).toMatchObject([1, { ok: false, findings: [finding], head }]);
});

test("audit verify sends the head that is known, and refuses another text", async () => {
  const { url, seen } = await verification(step);
  expect((await viv(url, ["audit", "verify", "--known", `2.${hash}`])).code).toBe(0);
  expect(seen.at(-1)?.url).toBe(`/v1/audit/verify?known=2.${hash}`);
  expect((await viv(url, ["audit", "verify", "--known", "2"])).code).toBe(2);
});

test("audit export prints the lines as they come; one without a head fails", async () => {
  const link = { type: "link", link: { seq: 2 }, entry };
  const lines = [link, { type: "head", head }].map((line) => `${JSON.stringify(line)}\n`);
  const { url, seen } = await serve((_request, response) => void response.end(lines.join("")));
  expect(await viv(url, ["audit", "export", "--after", "1"])).toMatchObject({ code: 0, out: lines.join("") });
  expect(seen.at(-1)?.url).toBe("/v1/audit/export?after=1");
  const broken = await serve((_request, response) => void response.end(lines[0]));
  const { code, err } = await viv(broken.url, ["audit", "export"]);
  expect([code, err]).toEqual([1, expect.stringContaining("broke off before its last line")]);
});
