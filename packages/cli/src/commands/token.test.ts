/** `viv token`: what it asks the service, and what it prints. */
import { expect, test } from "vitest";
import { inOwnDirectories, respond, S1, serve, viv } from "../../test-support/program.ts";

inOwnDirectories();

const at = "2027-01-01T10:00:00.000Z";
const record = (hash: string) => ({ hash, capabilities: ["pty", "view"], created_at: at, expires_at: at });
const tokens = [record("1f3a".padEnd(64, "0")), record("1fff".padEnd(64, "0"))];

const service = () =>
  serve(({ method }, response) => {
    if (method === "DELETE") respond(response, 204, undefined);
    else respond(response, 200, method === "GET" ? tokens : { ...tokens[0], token: "viv_st_abc" });
  });

test("a minted token is printed alone in a pipe, with the time and rights that were asked for", async () => {
  const { url, seen } = await service();
  expect(
    await viv(url, ["token", "mint", "--ttl", "1h", "--may", "view", "pty", "--may", "pty", "--", S1]),
  ).toEqual({
    code: 0,
    out: "viv_st_abc\n",
    err: "viv: the token is not shown again\n",
  });
  expect(seen.map(({ body }) => body)).toEqual([{ ttl_seconds: 3600, capabilities: ["view", "pty"] }]);
});

test("a token without a time, or with a right that does not exist, is asked for nowhere", async () => {
  const { url, seen } = await service();
  expect((await viv(url, ["token", "mint", S1])).err).toContain("--ttl");
  expect((await viv(url, ["token", "mint", S1, "--ttl", "1h", "--may", "root"])).err).toContain("pty");
  expect(seen).toEqual([]);
});

test("token ls shows rights and use", async () => {
  const { url } = await service();
  const { out } = await viv(url, ["token", "ls", S1]);
  expect(out).toMatch(
    /^HASH +MAY +AGE +USED +EXPIRES\n1f3a0{8} +pty view +\S+ +never +2027-01-01T10:00:00\.000Z\n/,
  );
});

test("token revoke takes the beginning of a hash, and refuses one of several tokens or of none", async () => {
  const { url, seen } = await service();
  expect((await viv(url, ["token", "revoke", S1, "1f3"])).code).toBe(0);
  expect(seen.at(-1)?.url).toBe(`/v1/sessions/${S1}/tokens/${tokens[0]?.hash}`);
  expect((await viv(url, ["token", "revoke", S1, "1f"])).err).toContain("2 tokens");
  expect((await viv(url, ["token", "revoke", S1, "abc"])).err).toContain("no token");
});
