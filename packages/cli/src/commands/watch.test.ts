import { expect, test } from "vitest";
import { inOwnDirectories, respond, serve, viv } from "../../test-support/program.ts";

inOwnDirectories();

const at = "2027-01-01T10:00:00.000Z";
const session = (session_id: string, state: string, facts = {}) => ({
  session_id,
  state,
  created_at: at,
  last_active_at: at,
  size: "small",
  vcpus: 1,
  mem_mb: 1024,
  ...facts,
});
type Page = { status?: number; body: unknown };

/** Serves one page after the other to the plain list, then simulates Ctrl-C. */
async function serveLooks(pages: Page[], ended: unknown[] = []) {
  return serve(({ url: asked }, response) => {
    if (asked?.includes("state=ended")) return respond(response, 200, { sessions: ended });
    const page = pages.shift();
    if (page) return respond(response, page.status ?? 200, page.body);
    process.emit("SIGINT");
    response.destroy();
  });
}

const watch = ["watch", "--interval", "1ms"];
const withoutTimes = (text: string) => text.replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "TIME").split("\n");

test("without a terminal, watch prints the sessions and then every change, until Ctrl-C ends it with 0", async () => {
  const { url } = await serveLooks(
    [
      { body: { sessions: [session("b", "creating"), session("a", "live", { name: "web" })] } },
      { body: { sessions: [session("b", "live"), session("a", "live", { name: "web" })] } },
      { body: { sessions: [session("b", "live")] } },
    ],
    [session("a", "ended", { end_reason: "client_destroy" })],
  );
  const { code, out, err } = await viv(url, watch);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(withoutTimes(out)).toEqual([
    "TIME  a  live  web",
    "TIME  b  creating",
    "TIME  b  creating -> live",
    "TIME  a  live -> ended  web  (client_destroy)",
    "",
  ]);
});

test("watch --json prints one object a line", async () => {
  const { url } = await serveLooks([
    { body: { sessions: [session("a", "live")] } },
    { body: { sessions: [session("a", "paused", { paused_at: at })] } },
  ]);
  const { out } = await viv(url, [...watch, "--json"]);
  expect(
    out
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line)),
  ).toEqual([
    { at: expect.any(String), session_id: "a", to: "live" },
    { at: expect.any(String), session_id: "a", from: "live", to: "paused" },
  ]);
});

test("a service that fails for a while is said once, and watched again when it answers", async () => {
  const down = { status: 500, body: { error: "the database is away", code: "internal" } };
  const { url } = await serveLooks([
    { body: { sessions: [session("a", "live")] } },
    down,
    down,
    { body: { sessions: [session("a", "paused")] } },
  ]);
  const { code, out, err } = await viv(url, watch);
  expect(code).toBe(0);
  expect(err).toBe("viv: the database is away; trying again\nviv: the service answers again\n");
  expect(withoutTimes(out).at(-2)).toBe("TIME  a  live -> paused");
});

test("a refused key, or a service that does not answer at all, ends a watch with the way out", async () => {
  const { url } = await serveLooks([
    { status: 401, body: { error: "the API key is unknown", code: "unauthenticated" } },
  ]);
  expect(await viv(url, watch)).toMatchObject({ code: 1, err: expect.stringContaining("VIV_API_KEY") });
  expect(await viv("http://127.0.0.1:1", watch)).toMatchObject({
    code: 1,
    err: expect.stringContaining("viv up"),
  });
});

test("on a terminal, watch draws a table on a screen of its own and leaves the changes behind", async () => {
  const { url } = await serveLooks([
    { body: { sessions: [session("a", "live")] } },
    { body: { sessions: [session("a", "paused")] } },
  ]);
  const { code, out } = await viv(url, watch, { TERM: "xterm", NO_COLOR: "1" }, { isInteractive: true });
  expect(code).toBe(0);
  const [drawn, left] = out.split("\u001b[?1049l");
  expect(drawn).toMatch(/a {3}live {3}small/);
  expect(left).toMatch(/^\d\d:\d\d:\d\d {2}a {2}live → paused\n$/);
});

test("a dumb terminal gets lines", async () => {
  const { url } = await serveLooks([{ body: { sessions: [session("a", "live")] } }]);
  const { out } = await viv(url, watch, { TERM: "dumb" }, { isInteractive: true });
  expect(withoutTimes(out)).toEqual(["TIME  a  live", ""]);
});
