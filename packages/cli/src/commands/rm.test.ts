import { describe, expect, test } from "vitest";
import { inOwnDirectories, respond, type Seen, serve, viv } from "../../test-support/program.ts";

inOwnDirectories();

const idOf = (letter: string, i = 0) => `${letter}${String(i).padStart(20, "0")}`;
const [A, B, C] = ["a", "b", "c"].map((letter) => idOf(letter)) as [string, string, string];
const record = (session_id: string, facts: object = {}) => ({
  session_id,
  state: "live",
  size: "small",
  created_at: "2027-01-01T10:00:00.000Z",
  ...facts,
});
const THREE = [record(A, { name: "web" }), record(B, { state: "paused" }), record(C)];
type Listed = ReturnType<typeof record>;

/** A service that ends sessions, except those for which it answers with an error. */
async function serveSessions(
  sessions: Listed[],
  errors: Record<string, [status: number, code: string]> = {},
) {
  let present = sessions;
  return await serve(({ method, url = "" }, response) => {
    if (method === "GET") return respond(response, 200, { sessions: present.slice(0, 500) });
    const id = url.split("/").at(-1) ?? "";
    const [status, code] = errors[id] ?? [204, ""];
    if (status !== 204) return respond(response, status, { error: `${code} it is`, code });
    present = present.filter(({ session_id }) => session_id !== id);
    response.writeHead(204).end();
  });
}

const ended = (seen: Seen[]) =>
  seen.filter(({ method }) => method === "DELETE").map(({ url }) => url?.split("/").at(-1));

describe("rm --all", () => {
  test("shows which sessions there are and how many, asks, and ends them on y", async () => {
    const { url, seen } = await serveSessions(THREE);
    const { code, out, err } = await viv(url, ["rm", "--all"], {}, { answer: "y" });
    expect({ code, out }).toEqual({ code: 0, out: `${A}\n${B}\n${C}\n` });
    expect(err).toMatch(new RegExp(`${A} +live.* web\n${B} +paused.*\n${C} +live`));
    expect(err).toContain("End these 3 sessions? What is on their disks is deleted. [y/N]");
    expect(ended(seen)).toEqual([A, B, C]);
  });

  test.each(["", "n", "no", "yy", "yes please"])("ends nothing on the answer %j", async (answer) => {
    const { url, seen } = await serveSessions(THREE);
    expect(await viv(url, ["rm", "--all"], {}, { answer })).toMatchObject({
      code: 1,
      out: "",
      err: expect.stringContaining("nothing was ended"),
    });
    expect(ended(seen)).toEqual([]);
  });

  test("needs --yes where no human can be asked, and does nothing without", async () => {
    const { url, seen } = await serveSessions(THREE);
    const refused = await viv(url, ["rm", "--all", "--json"]);
    expect(refused).toMatchObject({ code: 2, out: "", err: expect.stringContaining("--yes") });
    expect(seen).toEqual([]);
    expect(await viv(url, ["rm", "--all", "-y"])).toEqual({ code: 0, out: `${A}\n${B}\n${C}\n`, err: "" });
  });

  test("continues after a failure, counts a session that has ended meanwhile as done, and reports each", async () => {
    const { url } = await serveSessions(THREE, {
      [A]: [503, "session_node_unavailable"],
      [B]: [404, "not_found"],
    });
    const { code, out } = await viv(url, ["rm", "--all", "--yes", "--json"]);
    expect(code).toBe(1);
    expect(JSON.parse(out).results).toEqual([
      { session_id: A, ok: false, error: expect.any(String), code: "session_node_unavailable" },
      { session_id: B, ok: true },
      { session_id: C, ok: true },
    ]);
  });

  test("without any session there is nothing to ask and nothing to do", async () => {
    const { url } = await serveSessions([]);
    const { code, out, err } = await viv(url, ["rm", "--all"], {}, { answer: "y" });
    expect({ code, out, err }).toEqual({ code: 0, out: "", err: "viv: there are no sessions\n" });
    expect((await viv(url, ["rm", "--all", "--json", "-y"])).out).toBe('{"results":[]}\n');
  });

  test("ends more than one list contains, but none that was made after it began", async () => {
    const many = Array.from({ length: 700 }, (_, i) => record(idOf("d", i)));
    const late = record(A, { created_at: "2027-01-01T10:00:01.000Z" });
    let present: Listed[] = many;
    const { url } = await serve(({ method, url = "" }, response) => {
      if (method === "GET") return respond(response, 200, { sessions: present.slice(0, 500) });
      present = [late, ...present.filter(({ session_id }) => session_id !== late.session_id)];
      present = present.filter(({ session_id }) => session_id !== url.split("/").at(-1));
      response.writeHead(204).end();
    });
    const { code, out } = await viv(url, ["rm", "--all", "--yes"]);
    expect(code).toBe(0);
    expect(out.trim().split("\n")).toEqual(many.map(({ session_id }) => session_id));
    expect(present).toEqual([late]);
  });

  test("more sessions that fail than a list holds do not keep it going for ever", async () => {
    const many = Array.from({ length: 500 }, (_, i) => record(idOf("d", i)));
    const errors = Object.fromEntries(
      many.map(({ session_id }) => [session_id, [503, "unavailable"] as [number, string]]),
    );
    const { url, seen } = await serveSessions(many, errors);
    expect((await viv(url, ["rm", "--all", "--yes", "--json"])).code).toBe(1);
    expect(new Set(ended(seen)).size).toBe(500);
  });

  test.each([[["--all", "web"]], [["--all", "-r"]], [["--all", "web:notes.txt"]], [[]]])(
    "rm %j is a usage error",
    async (argv) => {
      const { url, seen } = await serveSessions(THREE);
      const { code, err } = await viv(url, ["rm", ...argv], {}, { answer: "y" });
      expect({ code, isSilent: err === "", seen }).toEqual({ code: 2, isSilent: false, seen: [] });
    },
  );
});

describe("rm of several sessions", () => {
  test("resolves all references before it ends any session, and ends one that is named twice once", async () => {
    const { url, seen } = await serveSessions(THREE);
    expect(await viv(url, ["rm", "web", "b000", A])).toEqual({ code: 0, out: `${A}\n${B}\n`, err: "" });
    expect(seen.map(({ method }) => method)).toEqual(["GET", "DELETE", "DELETE"]);
  });

  test("a reference without a session does not stop the others", async () => {
    const { url } = await serveSessions(THREE);
    const { code, out } = await viv(url, ["rm", "--json", "wbe", "web"]);
    expect(code).toBe(1);
    expect(JSON.parse(out).results).toEqual([
      { session_id: "wbe", ok: false, code: "not_found", error: expect.stringContaining('"wbe"') },
      { session_id: A, ok: true },
    ]);
  });
});
