import { expect, test } from "vitest";
import { inOwnDirectories, respond, S1, serve, viv } from "../../test-support/program.ts";

inOwnDirectories();

const event = (n: number, type: string, data: object) => ({
  id: `evt_${n}`,
  type,
  created_at: "2027-03-01T09:30:00.125Z",
  org_id: "org_1",
  session_id: S1,
  data,
});
const paused = event(1, "session.paused", { state: "paused", reason: "idle_timeout" });
const failed = event(2, "session.failed", { status_reason: "the machine ended" });
const forked = event(3, "session.forked", { state: "live", children: ["a", "b"] });
const LINES = [
  `2027-03-01T09:30:00.125Z  session.paused  ${S1}  state=paused reason=idle_timeout`,
  `2027-03-01T09:30:00.125Z  session.failed  ${S1}  status_reason="the machine ended"`,
  `2027-03-01T09:30:00.125Z  session.forked  ${S1}  state=live children=a,b`,
];

/** Streams these, and does not end. */
const streaming = (...events: { id: string; type: string }[]) =>
  serve((_request, response) => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (const each of events)
      response.write(`id: ${each.id}\nevent: ${each.type}\ndata: ${JSON.stringify(each)}\n\n`);
  });

/** Simulates Ctrl-C once so many lines were printed. */
const interruptAfter = (lines: number) => ({
  onOut: (out: string) => {
    if (out.trimEnd().split("\n").length === lines) setImmediate(() => process.emit("SIGINT"));
  },
});

test("kept events are printed one a line, oldest first, over pages", async () => {
  const { url, seen } = await serve(({ url: asked = "" }, response) =>
    respond(
      response,
      200,
      asked.includes("cursor") ? { events: [forked] } : { events: [paused, failed], next_cursor: "c" },
    ),
  );
  const { code, out, err } = await viv(url, ["events"]);
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out.trimEnd().split("\n")).toEqual(LINES);
  expect(seen.map((each) => each.url)).toEqual(["/v1/events?limit=200", "/v1/events?limit=200&cursor=c"]);
});

test("a follow prints new events, until Ctrl-C", async () => {
  const { url, seen } = await streaming(paused, failed);
  const argv = ["events", "-f", "--types", "session.*, egress.denied", "--session", S1];
  const { code, out, err } = await viv(url, argv, {}, interruptAfter(2));
  expect({ code, err }).toEqual({ code: 0, err: "" });
  expect(out.trimEnd().split("\n")).toEqual(LINES.slice(0, 2));
  expect(seen.map((each) => each.url)).toEqual([
    `/v1/events?types=session.*%2Cegress.denied&session_id=${S1}`,
  ]);
});

test.each([[["--json"]], [["--json", "-f"]]])("%j prints each event as one line of JSON", async (options) => {
  const isFollowed = options.includes("-f");
  const { url } = isFollowed
    ? await streaming(paused, forked)
    : await serve((_request, response) => respond(response, 200, { events: [paused, forked] }));
  const { out } = await viv(url, ["events", ...options], {}, isFollowed ? interruptAfter(2) : {});
  expect(
    out
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line)),
  ).toEqual([paused, forked]);
});

test("a name chosen by a guest cannot steer the terminal", async () => {
  const denied = event(4, "egress.denied", { host: "a\u001b[2J\nb", port: 443, reason: "name_not_allowed" });
  const { url } = await serve((_request, response) => respond(response, 200, { events: [denied] }));
  const { out } = await viv(url, ["events"], {}, { isInteractive: true });
  expect(out).not.toContain("\u001b[2J");
  expect(out.trimEnd().split("\n")).toHaveLength(1);
});

test("an empty type is a mistake, and a refusal of the service is reported", async () => {
  const { url, seen } = await serve((_request, response) =>
    respond(response, 400, { error: "types: must be event types", code: "validation" }),
  );
  expect(await viv(url, ["events", "--types", "session.*,"])).toMatchObject({ code: 2, out: "" });
  expect(seen).toEqual([]);
  const refused = await viv(url, ["events", "--types", "x"]);
  expect(refused).toMatchObject({ code: 1, out: "" });
  expect(refused.err).toContain("types: must be event types");
});
