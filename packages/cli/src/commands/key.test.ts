/** `viv key` and `viv project`: what they ask the service, and what they print. */
import { expect, test } from "vitest";
import { inOwnDirectories, respond, serve, viv } from "../../test-support/program.ts";

inOwnDirectories();

const at = "2027-01-01T10:00:00.000Z";
const project = { id: "prj_1", name: "web", created_at: at, is_default: false };
const key = { id: "key_1", name: "ci", prefix: "viv_abcdef", role: "full", created_at: at };

/** A service with one project and one key. */
const service = () =>
  serve(({ method, url }, response) => {
    if (method === "DELETE") return respond(response, 204, undefined);
    const isRead = method === "GET";
    if (url?.startsWith("/v1/projects")) respond(response, 200, isRead ? { projects: [project] } : project);
    else respond(response, 200, isRead ? { api_keys: [key] } : { ...key, key: "viv_abcdefgh" });
  });

test("a new key is printed alone in a pipe, and asked for with the project's id", async () => {
  const { url, seen } = await service();
  const limits = ["--project", "web", "--role", "read", "--sessions", "4", "--expires", at];
  expect(await viv(url, ["key", "create", "ci", ...limits])).toEqual({
    code: 0,
    out: "viv_abcdefgh\n",
    err: "viv: the key is not shown again\n",
  });
  expect(seen.at(-1)?.body).toEqual({
    name: "ci",
    project_id: "prj_1",
    role: "read",
    concurrent_sessions: 4,
    expires_at: at,
  });
});

test("an unknown project is refused with the names of those there are, and no key is made", async () => {
  const { url, seen } = await service();
  const { code, err } = await viv(url, ["key", "create", "ci", "--project", "wbe"]);
  expect([code, err]).toEqual([1, expect.stringContaining('no project is called "wbe"\n')]);
  expect(err).toContain("There are: web.");
  expect(seen.map(({ method }) => method)).toEqual(["GET"]);
});

test("key ls shows each key's beginning and use, and leaves out columns without values", async () => {
  const { url } = await service();
  const { out } = await viv(url, ["key", "ls"]);
  expect(out).toMatch(/^ID +NAME +KEY +ROLE +AGE +USED\nkey_1 +ci +viv_abcdef… +full +\S+ +never\n$/);
});

test("key revoke goes through all ids", async () => {
  const { url, seen } = await service();
  expect((await viv(url, ["key", "revoke", "key_1", "key_2"])).out).toBe("key_1\nkey_2\n");
  expect(seen.map(({ method, url: path }) => `${method} ${path}`)).toEqual([
    "DELETE /v1/api-keys/key_1",
    "DELETE /v1/api-keys/key_2",
  ]);
});

test("project create prints the id, and project rm takes the name", async () => {
  const { url, seen } = await service();
  expect((await viv(url, ["project", "create", "web", "--label", "team=a"])).out).toBe("prj_1\n");
  expect(seen.at(-1)?.body).toEqual({ name: "web", labels: { team: "a" } });
  expect((await viv(url, ["project", "rm", "web"])).out).toBe("web\n");
  expect(seen.at(-1)?.url).toBe("/v1/projects/prj_1");
});
