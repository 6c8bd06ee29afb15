import path from "node:path";
import type { SessionRecord } from "@vivarium/sdk";
import { describe, expect, test } from "vitest";
import { dir, inOwnDirectories, respond, type Seen, serve, viv } from "../../test-support/program.ts";
import { pickSession } from "./find-session.ts";

inOwnDirectories();

const WEB = "4x7k2m9q0a1b2c3d4e5f6";
const DB = "4x7kzzzz0a1b2c3d4e5f6";
const OTHER = "9q0a1b2c3d4e5f64x7k2m";

const record = (session_id: string, facts: object = {}) => ({
  session_id,
  state: "live",
  size: "small",
  vcpus: 1,
  mem_mb: 1024,
  created_at: "2027-01-01T10:00:00.000Z",
  last_active_at: "2027-01-01T10:00:00.000Z",
  ...facts,
});
const THREE = [record(WEB, { name: "web" }), record(DB, { name: "my db", state: "paused" }), record(OTHER)];

const LIST = "/v1/sessions?limit=500";
const ENDED = "/v1/sessions?state=ended&limit=500";

/** A service with these sessions and these ended ones; it serves their records and nothing else. */
async function serveSessions(sessions: object[] = THREE, ended: object[] = []) {
  return await serve(({ method, url = "" }, response) => {
    if (url.startsWith(LIST)) return respond(response, 200, { sessions });
    if (url.startsWith(ENDED)) return respond(response, 200, { sessions: ended });
    if (method === "DELETE") return void response.writeHead(204).end();
    const id = /^\/v1\/sessions\/(\w+)$/.exec(url)?.[1];
    const known = THREE.find(({ session_id }) => session_id === id);
    if (known) return respond(response, 200, known);
    respond(response, 404, { error: "nothing of that", code: "not_found" });
  });
}

const urls = (seen: Seen[]) => seen.map(({ url }) => url);
/** The session that a `get` printed. */
async function got(url: string, reference: string): Promise<string> {
  return JSON.parse((await viv(url, ["get", "--json", reference])).out).session_id;
}

test("a session is given by its id, its name, or the beginning of its id", async () => {
  const { url } = await serveSessions();
  expect(await got(url, WEB)).toBe(WEB);
  expect(await got(url, "web")).toBe(WEB);
  expect(await got(url, "my db")).toBe(DB);
  expect(await got(url, "4x7k2")).toBe(WEB);
  expect(await got(url, "9q0a")).toBe(OTHER);
});

test("an id in full costs no request, a name or a beginning costs one", async () => {
  const { url, seen } = await serveSessions();
  await got(url, WEB);
  expect(urls(seen)).toEqual([`/v1/sessions/${WEB}`]);
  seen.length = 0;
  await got(url, "web");
  expect(urls(seen)).toEqual([LIST, `/v1/sessions/${WEB}`]);
});

test("a reference in the form of an id is an id, also when a session has that name", async () => {
  const { url, seen } = await serveSessions([record(WEB, { name: OTHER }), record(OTHER)]);
  expect(await got(url, OTHER)).toBe(OTHER);
  expect(urls(seen)).toEqual([`/v1/sessions/${OTHER}`]);
});

test("a name goes before the beginning of another's id", async () => {
  const { url } = await serveSessions([record(WEB), record(OTHER, { name: "4x7k2" })]);
  expect(await got(url, "4x7k2")).toBe(OTHER);
});

test("a beginning that fits several sessions lists them, and does nothing", async () => {
  const { url, seen } = await serveSessions();
  const { code, out, err } = await viv(url, ["rm", "4x7k"]);
  expect({ code, out }).toEqual({ code: 1, out: "" });
  expect(err.split("\n")).toEqual([
    'viv: "4x7k" fits 2 sessions:',
    expect.stringMatching(/^ +ID +STATE +SIZE +TEMPLATE +AGE +NAME$/),
    expect.stringMatching(new RegExp(`^ +${WEB} +live +small +base +\\w+ +web$`)),
    expect.stringMatching(new RegExp(`^ +${DB} +paused +small +base +\\w+ +my db$`)),
    expect.stringContaining("Give the id of one"),
    "",
  ]);
  expect(urls(seen)).toEqual([LIST]);
});

test("a name that several sessions have lists them", async () => {
  const { url } = await serveSessions([record(WEB, { name: "a" }), record(OTHER, { name: "a" })]);
  const { code, err } = await viv(url, ["get", "a"]);
  expect({ code, err }).toEqual({ code: 1, err: expect.stringMatching(`${WEB}[\\s\\S]*${OTHER}`) });
});

test("fewer than four characters are no beginning of an id, but may be a name", async () => {
  const { url, seen } = await serveSessions([record(WEB), record(OTHER, { name: "9q0" })]);
  expect(await got(url, "9q0")).toBe(OTHER);
  seen.length = 0;
  const { code, err } = await viv(url, ["rm", "4x7"]);
  expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining(WEB) });
  expect(err).toContain("at least 4 characters");
  expect(urls(seen)).toEqual([LIST]);
});

test("where there are more sessions than a list holds, no beginning of an id is known to be unique", async () => {
  const many = Array.from({ length: 499 }, (_, i) => record(`b${String(i).padStart(20, "0")}`));
  const { url, seen } = await serveSessions([record(WEB, { name: "web" }), ...many]);
  const { code, err } = await viv(url, ["rm", "4x7k2"]);
  expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining(WEB) });
  expect(err).toContain("Give the whole id, or the name.");
  expect(urls(seen)).toEqual([LIST]);
  const sessions = [record(WEB), ...many] as unknown as SessionRecord[];
  expect(pickSession(WEB, { sessions })?.session_id).toBe(WEB);
});

describe("a name where there are more sessions than a list holds", () => {
  const many = Array.from({ length: 499 }, (_, i) => record(`b${String(i).padStart(20, "0")}`));
  const newest = [record(WEB, { name: "web" }), ...many];
  const STATES = ["live", "paused", "creating"].map((state) => `/v1/sessions?state=${state}&limit=500`);

  /** A service that has these sessions beside the newest 500. */
  async function serveMany(lists: Partial<Record<"live" | "paused", object[]>>) {
    return await serve(({ method, url = "" }, response) => {
      const state = /state=(\w+)/.exec(url)?.[1];
      if (url.startsWith(LIST)) return respond(response, 200, { sessions: newest });
      if (url.startsWith("/v1/sessions?"))
        return respond(response, 200, { sessions: lists[state as "live" | "paused"] ?? [] });
      if (method === "DELETE") return void response.writeHead(204).end();
      respond(response, 200, record(url.split("/").at(-1) ?? ""));
    });
  }

  test("is looked for in the lists of each state", async () => {
    const { url, seen } = await serveMany({
      live: newest.slice(0, 400),
      paused: [record(OTHER, { name: "older", state: "paused" })],
    });
    expect(await got(url, "web")).toBe(WEB);
    expect(urls(seen).toSorted()).toEqual([LIST, ...STATES, `/v1/sessions/${WEB}`].toSorted());
    expect(await got(url, "older")).toBe(OTHER);
  });

  test("that a session of another project has as well lists both, and does nothing", async () => {
    const { url, seen } = await serveMany({ paused: [record(OTHER, { name: "web", state: "paused" })] });
    const { code, err } = await viv(url, ["rm", "web"]);
    expect({ code, err }).toEqual({
      code: 1,
      err: expect.stringMatching(`fits 2[\\s\\S]*${WEB}[\\s\\S]*${OTHER}`),
    });
    expect(urls(seen).toSorted()).toEqual([LIST, ...STATES].toSorted());
  });

  test("is not taken where those leave out sessions, too", async () => {
    const { url, seen } = await serveMany({ live: newest });
    const { code, err } = await viv(url, ["rm", "web"]);
    expect({ code, err }).toEqual({ code: 1, err: expect.stringContaining(WEB) });
    expect(err).toContain("more sessions than a list holds");
    expect(err).toContain("Give the whole id.");
    expect(urls(seen).toSorted()).toEqual([LIST, ...STATES].toSorted());
  });
});

describe("when nothing fits", () => {
  test("it says so in plain words and where to look", async () => {
    const { url } = await serveSessions();
    const { code, out, err } = await viv(url, ["get", "wbe"]);
    expect({ code, out }).toEqual({ code: 1, out: "" });
    expect(err).toContain('no session has "wbe" for its name or as the beginning of its id');
    expect(err).toContain("viv ls");
  });

  test("it shows the sessions that have ended and would have fitted", async () => {
    const ended = record("7e7e7e7e7e7e7e7e7e7e7", {
      name: "old",
      state: "ended",
      end_reason: "max_lifetime",
    });
    const { url, seen } = await serveSessions(THREE, [ended]);
    const { code, err } = await viv(url, ["get", "old"]);
    expect({ code, err }).toEqual({
      code: 1,
      err: expect.stringMatching(/"old" any more; ended:\n[\s\S]*7e7e7.* ended .*max_lifetime/),
    });
    expect(urls(seen)).toEqual([LIST, ENDED]);
  });

  test.each([
    "..",
    ".",
    "a/b",
    "../../healthz",
    "?limit=1",
    "a b",
    " ",
    "%2e%2e",
    "web\n",
    "WEB",
    "\u001b[2Jx",
    "é",
    `${WEB}0`,
    `${WEB}-1`,
  ])("%j reaches no other path of the service, and does not steer the terminal", async (reference) => {
    const { url, seen } = await serveSessions();
    const { code, out, err } = await viv(url, ["get", "--", reference]);
    expect({ code, out }).toEqual({ code: 1, out: "" });
    expect(urls(seen)).toEqual([LIST, ENDED]);
    expect(err).toMatch(/^viv: no session has ".*" for its name/);
    expect(err).not.toContain("\u001b");
  });

  test("an empty name, as an unset variable makes it, asks nothing of the service", async () => {
    const { url, seen } = await serveSessions();
    for (const argv of [
      ["rm", ""],
      ["get", ""],
      ["checkpoint", "ls", ""],
      ["events", "--session", ""],
    ])
      expect(await viv(url, argv)).toMatchObject({ code: 1, err: expect.stringContaining("is empty") });
    expect(seen).toEqual([]);
  });

  test.each([
    ["exec", "nobody", "--", "true"],
    ["ssh", "nobody"],
  ])("%s exits with what says that nothing was run", async (...argv) => {
    const { url } = await serveSessions();
    expect(await viv(url, argv)).toMatchObject({ code: 125, out: "" });
  });
});

describe("sessions that have ended", () => {
  const past = record("7e7e7e7e7e7e7e7e7e7e7", { name: "old", state: "ended", end_reason: "client_destroy" });
  const reused = record("8e8e8e8e8e8e8e8e8e8e8", { name: "web", state: "ended" });

  test.each([
    [["egress", "log", "old"], `/v1/sessions/${past.session_id}/egress-log?limit=100`],
    [["checkpoint", "ls", "7e7e"], `/v1/checkpoints?session_id=${past.session_id}&limit=200`],
    [["events", "--session", "old"], `/v1/events?session_id=${past.session_id}&limit=200`],
  ])("%j finds them, because something of them is kept", async (argv, url) => {
    const service = await serveSessions(THREE, [past, reused]);
    await viv(service.url, argv);
    expect(urls(service.seen)).toEqual([LIST, ENDED, url]);
  });

  test("a session that has not ended goes before ended ones", async () => {
    const { url, seen } = await serveSessions(THREE, [reused]);
    await viv(url, ["egress", "log", "web"]);
    expect(urls(seen)).toEqual([LIST, `/v1/sessions/${WEB}/egress-log?limit=100`]);
  });
});

/** Every verb that works on a session: how it is called, with `@` for the session. */
const VERBS = [
  "get @",
  "rm @",
  "rm @:notes.txt",
  "exec @ -- true",
  "exec --json @ -- true",
  "ssh @",
  "tunnel @",
  "tunnel viv-@",
  "start @ --name web -- true",
  "ps @",
  "logs @ build",
  "logs -f @ build",
  "kill @ build",
  "cp @:a DIR",
  "cp DIR/control/bootstrap.key @:",
  "cat @:a",
  "edit @:a",
  "find @ *",
  "find @:src *",
  "grep x @",
  "mkdir @:a",
  "mv @:a @:b",
  "ls @:src",
  "ls -l @:src",
  "expose @ 80",
  "unexpose @ 80",
  "open @ 80",
  "egress get @",
  "egress set --mode deny @",
  "egress log @",
  "egress log -f @",
  "cap @",
  "cap @ none",
  "events --session @",
  "pause @",
  "resume @",
  "fork @",
  "restore @ before",
  "checkpoint create @",
  "checkpoint ls @",
  "template save @ tools",
];

test.each(VERBS)("viv %s finds the session by name and by the beginning of its id", async (line) => {
  for (const reference of ["web", "4x7k2"]) {
    const { url, seen } = await serve((request, response) => {
      if (request.url === LIST) respond(response, 200, { sessions: THREE });
      else respond(response, 404, { error: "nothing of that", code: "not_found" });
    });
    const argv = line.split(" ").map((word) => word.replace("@", reference).replace("DIR", dir));
    await viv(url, argv, { EDITOR: "true" });
    const [list, next] = urls(seen);
    expect([list, next]).toEqual([LIST, expect.stringContaining(WEB)]);
    expect(urls(seen).filter((each) => each === LIST)).toHaveLength(1);
  }
});

test("ssh-config names the session that was meant, and also as it was given", async () => {
  const { url } = await serveSessions();
  const env = { XDG_STATE_HOME: path.join(dir, "state") };
  const { out } = await viv(url, ["ssh-config", "web", "my db"], env);
  expect(out.split("\n").filter((line) => line.startsWith("Host "))).toEqual([
    `Host viv-${WEB} viv-web`,
    `Host viv-${DB}`,
  ]);
  expect(out).toMatch(new RegExp(`ProxyCommand .* tunnel .* ${WEB}\n`));
  expect(out).toContain(`HostKeyAlias viv-${WEB}\n`);
});

test("tree shows the tree of a session that is given by name", async () => {
  const { url } = await serve((request, response) =>
    respond(response, 200, request.url?.includes("checkpoints") ? { checkpoints: [] } : { sessions: THREE }),
  );
  const { roots } = JSON.parse((await viv(url, ["tree", "--json", "web"])).out);
  expect(roots).toMatchObject([{ session: { session_id: WEB } }]);
  expect((await viv(url, ["tree", "4x7k"])).err).toContain("fits 2 sessions");
  expect((await viv(url, ["tree", "wbe"])).err).toContain('"wbe"');
});

test("mv stays within one session, however its two sides name it", async () => {
  const { url } = await serveSessions();
  expect((await viv(url, ["mv", "web:a", `${WEB}:b`])).err).not.toContain("within one session");
  expect(await viv(url, ["mv", "web:a", "9q0a:b"])).toMatchObject({ code: 2 });
});
