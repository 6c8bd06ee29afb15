import { expect, test } from "vitest";
import { inOwnDirectories, respond, S1, serve, viv } from "../../../test-support/program.ts";

inOwnDirectories();

const line = (host: string, facts: object = {}) => ({
  at: "2027-03-01T09:30:00.125Z",
  kind: "tls",
  host,
  port: 443,
  decision: "denied",
  reason: "name_not_allowed",
  bytes_out: 0,
  bytes_in: 0,
  count: 1,
  ...facts,
});
type Line = ReturnType<typeof line>;
const sent = line("b.example", {
  decision: "allowed",
  reason: "name_allowed",
  bytes_out: 2048,
  bytes_in: 512,
});

/**
 * Serves one log after the other, newest line first, three a page. Then the session is gone, or Ctrl-C is simulated.
 */
async function serveLogs(logs: (Line[] | "down")[], end: "gone" | "interrupt" = "gone") {
  let look = 0;
  let isFollowed = false;
  return await serve(({ url: asked = "" }, response) => {
    if (!asked.includes("egress-log")) {
      isFollowed = true;
      if (look < logs.length - 1 || end === "interrupt") return respond(response, 200, { session_id: S1 });
      return respond(response, 404, { error: "session not found", code: "not_found" });
    }
    const { searchParams } = new URL(asked, "http://h");
    const start = Number(searchParams.get("cursor") ?? 0);
    if (start === 0 && isFollowed) look++;
    const log = logs[look];
    if (log === undefined) {
      process.emit("SIGINT");
      return void response.destroy();
    }
    if (log === "down") return respond(response, 500, { error: "the database is away", code: "internal" });
    const next = start + 3;
    const page = { entries: log.slice(start, next) };
    respond(response, 200, next < log.length ? { ...page, next_cursor: String(next) } : page);
  });
}

const follow = ["egress", "log", "-f", "--interval", "1ms"];
const hostsOf = (out: string) =>
  out
    .trim()
    .split("\n")
    .filter((text) => text !== "")
    .map((text) => JSON.parse(text).host);

test("the newest lines are a table, oldest first", async () => {
  const { url, seen } = await serveLogs([[line("c.example", { count: 3 }), sent, line("a.example")]]);
  const { code, out, err } = await viv(url, ["egress", "log", "--limit", "2", S1]);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out.split("\n")).toEqual([
    expect.stringMatching(/^TIME +KIND +DECISION +TO +SENT +RECEIVED +REASON +COUNT$/),
    expect.stringMatching(/^2027\S+Z +tls +allowed +b\.example:443 +2\.0 KiB +512 B +name_allowed +1$/),
    expect.stringMatching(/^2027\S+Z +tls +denied +c\.example:443 +0 B +0 B +name_not_allowed +3$/),
    "",
  ]);
  expect(seen.map((each) => each.url)).toEqual([`/v1/sessions/${S1}/egress-log?limit=2`]);
});

test("filters go to the service, and JSON has the lines in the same order", async () => {
  const { url, seen } = await serveLogs([[line("b.example"), line("a.example")]]);
  const since = ["--since", "2027-03-01T09:30:00Z"];
  const argv = ["egress", "log", "--json", "--denied", "--host", "a.example", ...since, S1];
  expect(JSON.parse((await viv(url, argv)).out)).toEqual({ entries: [line("a.example"), line("b.example")] });
  expect(seen[0]?.url).toBe(
    `/v1/sessions/${S1}/egress-log?since=2027-03-01T09%3A30%3A00.000Z&decision=denied&host=a.example&limit=100`,
  );
});

test("a name chosen by a guest cannot steer the terminal", async () => {
  const { url } = await serveLogs([[line("a\u001b[2Jb\nc")]]);
  const { out } = await viv(url, ["egress", "log", S1], {}, { isInteractive: true });
  expect(out).not.toContain("\u001b[2J");
  expect(out.trim().split("\n")).toHaveLength(2);
});

test("an empty log says so", async () => {
  const { url } = await serveLogs([[]]);
  expect((await viv(url, ["egress", "log", S1])).out).toContain("Nothing logged");
});

test("a follow prints the present lines and then each new one, over pages, until the session ends", async () => {
  const [a, b, c, d, e, f, g] = ["a", "b", "c", "d", "e", "f", "g"].map((name) => line(name)) as Line[];
  const { url } = await serveLogs([
    [b, a],
    [b, a],
    [f, e, d, c, b, a],
    [g, f, e, d, c, b, a],
  ] as Line[][]);
  const { code, out, err } = await viv(url, [...follow, "--json", S1]);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(hostsOf(out)).toEqual(["a", "b", "c", "d", "e", "f", "g"]);
});

test("a follow begins with the requested number of lines, also with none", async () => {
  const logs = [
    [line("b"), line("a")],
    [line("c"), line("b"), line("a")],
  ];
  const { url } = await serveLogs(logs);
  expect(hostsOf((await viv(url, [...follow, "--json", "--limit", "1", S1])).out)).toEqual(["b", "c"]);
  const empty = await serveLogs([[], [], [line("a")]]);
  expect(hostsOf((await viv(empty.url, [...follow, "--json", S1])).out)).toEqual(["a"]);
});

test("a follow distinguishes equal lines by their neighbours", async () => {
  const [x, y] = [line("x"), line("y")];
  const { url } = await serveLogs([
    [x, x, y],
    [x, y, x, x, y],
  ]);
  expect(hostsOf((await viv(url, [...follow, "--json", S1])).out)).toEqual(["y", "x", "x", "y", "x"]);
});

test("a follow continues when old lines are dropped, and when the service fails for a while", async () => {
  const [a, b, c] = [line("a"), line("b"), line("c")];
  const { url } = await serveLogs([[b, a], "down", [c, b]]);
  const { code, out } = await viv(url, [...follow, "--json", S1]);
  expect({ code, hosts: hostsOf(out) }).toEqual({ code: 0, hosts: ["a", "b", "c"] });
});

test("Ctrl-C is how a follow ends", async () => {
  const { url } = await serveLogs([[sent]], "interrupt");
  const { code, out, err } = await viv(url, [...follow, S1]);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out).toBe(
    "2027-03-01T09:30:00.125Z  tls  allowed  b.example:443  name_allowed  sent 2.0 KiB  received 512 B\n",
  );
});

test("a session that never was is an error", async () => {
  const { url } = await serve((_request, response) =>
    respond(response, 404, { error: "session not found", code: "not_found" }),
  );
  expect(await viv(url, [...follow, S1])).toMatchObject({ code: 1, out: "" });
});
