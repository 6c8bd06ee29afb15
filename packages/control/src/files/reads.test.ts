/** Reading, listing and searching files over a fake node. */
import { encodeFrame, encodeList, FRAME, GUEST_ERRORS, type GuestErrorCode } from "@vivarium/contract/guest";
import { Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

const MIB = 2 ** 20;
let control: Control;
let id: string;
beforeAll(async () => {
  control = await startControl();
  id = await control.createLive();
});
beforeEach(() => {
  control.node.guestCalls.length = 0;
});
afterAll(() => control.close());

const files = (query: string, session = id) => control.ask(`GET /v1/sessions/${session}/files${query}`);
const holds = (content: Buffer | string) => {
  control.node.onGuest = (call) => call.bytes(Buffer.from(content as string));
};
const answers = (body: unknown) => {
  control.node.onGuest = (call) => call.json(body);
};
const refuses = (code: GuestErrorCode | "machine_held" | "agent_unavailable", message?: string) => {
  control.node.onGuest = () => {
    throw new Refusal(code, message);
  };
};
const asked = () => control.node.guestCalls.map(({ call, query }) => ({ call, query }));

/** Longer than the lease of the previous operation and the idle timeout's grace period. */
const untilPaused = (session: string) =>
  eventually(
    async () => expect((await control.ask(`GET /v1/sessions/${session}`)).body.state).toBe("paused"),
    30_000,
  );

describe("read", () => {
  test("is the default, and gives the content as text", async () => {
    holds("grüße\n");
    const { status, body } = await files("?path=a.txt");
    expect([status, body]).toEqual([200, { content: "grüße\n" }]);
    expect(asked()).toEqual([
      { call: "GET files/read", query: { path: "a.txt", max_bytes: String(4 * MIB) } },
    ]);
  });

  test("as text, bytes that are no UTF-8 become U+FFFD", async () => {
    holds(Buffer.from([0x61, 0xff, 0x62]));
    expect((await files("?path=a")).body).toEqual({ content: "a\ufffdb" });
  });

  test("as base64 gives the bytes, and says so", async () => {
    holds(Buffer.from([0xff, 0x00]));
    expect((await files("?path=a&encoding=base64")).body).toEqual({ content: "/wA=", encoding: "base64" });
  });

  test("an empty file has an empty content", async () => {
    holds("");
    expect((await files("?path=a")).body).toEqual({ content: "" });
  });

  test("a file over 4 MiB is payload_too_large", async () => {
    refuses("too_large");
    const { status, body } = await files("?path=a");
    expect([status, body.code]).toEqual([400, "payload_too_large"]);
    expect(body.error).toMatch(/^path: /);
  });

  test("a guest that sends more than was asked for is cut off", async () => {
    holds(Buffer.alloc(4 * MIB + 1));
    const { status, body } = await files("?path=a");
    expect([status, body.code]).toEqual([502, "bad_gateway"]);
  });

  test.each([
    ["?path=", /^path: must not be empty/],
    ["", /^path: must be a string, got nothing$/],
    ["?path=a&path=b", /^path: must be a string, got an array of 2$/],
    ["?path=/etc/passwd", /^path: path must be under \/workspace/],
    ["?path=../etc/passwd", /^path: path must be under \/workspace/],
    ["?path=%2e%2e/etc", /^path: path must be under \/workspace/],
    ["?path=/workspace-evil/x", /^path: path must be under \/workspace/],
    ["?path=a%00b", /^path: must not contain a NUL/],
    [`?path=${"x".repeat(256)}`, /^path: each part must be at most 255 bytes/],
    [`?path=${"x/".repeat(2049)}`, /^path: must be at most 4096 bytes/],
    ["?path=%ff", /^path: must be percent-encoded UTF-8/],
    ["?path=a&encoding=utf8", /^encoding: must be one of "text", "base64", got "utf8"$/],
    ["?path=a&op=write", /^op: must be one of "read", "list", "find", "grep", got "write"$/],
  ])("files%s is refused before the session is looked up", async (query, message) => {
    const answer = await files(query, "a".repeat(21));
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(message);
  });

  test("an invalid request does not wake a paused session", async () => {
    const paused = await control.createLive();
    await control.ask(`POST /v1/sessions/${paused}/pause`);
    for (const query of ["?path=/etc/passwd", "?op=find", "?op=grep&pattern=x&max_results=0"])
      expect((await files(query, paused)).status).toBe(400);
    expect((await control.ask(`GET /v1/sessions/${paused}`)).body.state).toBe("paused");
  });
});

describe("list", () => {
  test("gives names as they are, of /workspace when no path is given", async () => {
    answers({ entries: [".hidden", "a\nb", "dir/", "\\xff"], truncated: false });
    expect((await files("?op=list")).body).toEqual({ entries: [".hidden", "a\nb", "dir/", "\\xff"] });
    expect(asked()).toEqual([{ call: "GET files/list", query: { path: "/workspace" } }]);
  });

  test("an empty directory has no entries, and the key", async () => {
    answers({ entries: [], truncated: false });
    expect((await files("?op=list&path=x")).body).toEqual({ entries: [] });
  });

  test("truncated is there only when true", async () => {
    answers({ entries: ["a"], truncated: true });
    expect((await files("?op=list")).body).toEqual({ entries: ["a"], truncated: true });
  });

  test("encoding outside read is refused", async () => {
    const { status, body } = await files("?op=list&encoding=text");
    expect([status, body.error]).toEqual([400, 'encoding: is accepted with op=read only, got "text"']);
  });
});

describe("find", () => {
  test("asks with a thousand results and echoes the path", async () => {
    answers({ paths: ["/workspace/a.py"], truncated: false, duration_us: 1500 });
    expect((await files("?op=find&pattern=*.py&path=src")).body).toEqual({
      paths: ["/workspace/a.py"],
      truncated: false,
      path: "src",
      duration_ms: 2,
    });
    expect(asked()[0]).toEqual({
      call: "GET files/find",
      query: { path: "src", pattern: "*.py", max_results: "1000" },
    });
  });

  test("max_results above 10,000 is taken for 10,000", async () => {
    answers({ paths: [], truncated: true, duration_us: 0 });
    await files(`?op=find&pattern=a&max_results=${"9".repeat(30)}`);
    expect(asked().pop()?.query.max_results).toBe("10000");
    const { body } = await files("?op=find&pattern=a&max_results=99999");
    expect(body).toEqual({ paths: [], truncated: true, path: "/workspace", duration_ms: 0 });
    expect(asked()[0]?.query.max_results).toBe("10000");
  });

  test.each([
    ["?op=find", /^pattern: must be a string, got nothing$/],
    ["?op=find&pattern=", /^pattern: must not be empty/],
    ["?op=find&pattern=a&max_results=0", /^max_results: must be a whole number of at least 1/],
    ["?op=find&pattern=a&max_results=-1", /^max_results: must be a whole number of at least 1/],
    ["?op=find&pattern=a&max_results=1.5", /^max_results: must be a whole number of at least 1/],
    ["?op=grep", /^pattern: must be a string, got nothing$/],
    ["?op=grep&pattern=a&context_lines=-1", /^context_lines: must be a whole number of at least 0/],
    ["?op=grep&pattern=a&case_sensitive=yes", /^case_sensitive: must be one of/],
  ])("files%s is refused", async (query, message) => {
    const { status, body } = await files(query);
    expect([status, body.code]).toEqual([400, "validation"]);
    expect(body.error).toMatch(message);
    expect(asked()).toEqual([]);
  });
});

describe("grep", () => {
  const found = (more: object = {}) => ({
    matches: [{ path: "/workspace/a", line_number: 3, line: "x", ...more }],
    files_searched: 7,
    truncated: false,
    duration_us: 4000,
  });

  test("ignores case and gives no context unless asked", async () => {
    answers(found());
    expect((await files("?op=grep&pattern=x")).body).toEqual({
      matches: [{ path: "/workspace/a", line_number: 3, line: "x" }],
      files_searched: 7,
      truncated: false,
      path: "/workspace",
      duration_ms: 4,
    });
    expect(asked()[0]?.query).toEqual({ path: "/workspace", pattern: "x", max_results: "1000" });
  });

  test("hands on every option; context_lines above 10 is taken for 10", async () => {
    answers(found({ before: ["b"], after: [] }));
    const query =
      "?op=grep&pattern=x%7Cy&path=src&file_pattern=*.ts&case_sensitive=true&context_lines=11&max_results=5&exclude_dirs=.git,node_modules";
    expect((await files(query)).body.matches).toEqual([
      { path: "/workspace/a", line_number: 3, line: "x", before: ["b"] },
    ]);
    expect(asked()[0]?.query).toEqual({
      path: "src",
      pattern: "x|y",
      max_results: "5",
      file_pattern: "*.ts",
      case_sensitive: "true",
      context_lines: "10",
      exclude_dirs: ".git,node_modules",
    });
  });

  test.each([
    ["pattern: look-around is not supported", "pattern: look-around is not supported"],
    ["file_pattern: unclosed [\nat 3", "file_pattern: unclosed [ at 3"],
    ["", "pattern: the pattern cannot be used"],
  ])("a pattern that the guest refuses with %j is told in its words, on one line", async (words, message) => {
    refuses("bad_pattern", words);
    const { status, body } = await files("?op=grep&pattern=(?=x)");
    expect([status, body]).toEqual([400, { error: message, code: "validation" }]);
  });
});

describe("a refusal of the guest", () => {
  const table: [GuestErrorCode, number, string][] = [
    ["bad_path", 400, "validation"],
    ["outside_workspace", 400, "validation"],
    ["no_such_file", 404, "not_found"],
    ["parent_not_a_directory", 404, "not_found"],
    ["not_a_directory", 400, "validation"],
    ["is_a_directory", 400, "validation"],
    ["not_a_regular_file", 400, "validation"],
    ["permission_denied", 400, "validation"],
    ["read_only", 400, "validation"],
    ["busy", 400, "validation"],
    ["directory_not_empty", 409, "conflict"],
    ["file_exists", 409, "conflict"],
    ["no_space", 409, "conflict"],
    ["workspace_root", 400, "validation"],
  ];
  test.each(table)("%s is %i %s, in the words of the table and no others", async (code, status, apiCode) => {
    refuses(code, "/srv/pool/m/secret: ENOENT");
    const answer = await files("?path=a");
    expect([answer.status, answer.body]).toEqual([
      status,
      { error: `path: ${GUEST_ERRORS[code].text}`, code: apiCode },
    ]);
    expect(answer.headers["retry-after"]).toBeUndefined();
  });
});

describe("the session", () => {
  test("an unknown one is 404, and so is a foreign one", async () => {
    const foreign = await control.addKey();
    for (const answer of [
      await files("?path=a", "b".repeat(21)),
      await control.ask(`GET /v1/sessions/${id}/files?path=a`, { key: foreign }),
    ])
      expect([answer.status, answer.body.code]).toEqual([404, "not_found"]);
    expect(asked()).toEqual([]);
  });

  test("is woken when it is paused", async () => {
    const paused = await control.createLive();
    await control.ask(`POST /v1/sessions/${paused}/pause`);
    holds("kept");
    expect((await files("?path=a", paused)).body).toEqual({ content: "kept" });
    expect((await control.ask(`GET /v1/sessions/${paused}`)).body.state).toBe("live");
  });

  test("is waited for while it is being created", async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onStart = () => promise;
    const young = await control.create();
    holds("here");
    const read = files("?path=a", young);
    setTimeout(resolve, 100);
    expect((await read).body).toEqual({ content: "here" });
    control.node.onStart = () => {};
  });

  test("is waited for and woken while it is being paused, since nothing was done yet", async () => {
    const victim = await control.createLive();
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onSnapshot = () => promise;
    const pause = control.ask(`POST /v1/sessions/${victim}/pause`);
    await eventually(async () => {
      const { rows } = await control.sql.query("select op from sessions where id = $1", [victim]);
      expect(rows[0].op).toBe("pause");
    });
    holds("after");
    const read = files("?path=a", victim);
    resolve();
    expect((await pause).status).toBe(200);
    expect((await read).body).toEqual({ content: "after" });
    control.node.onSnapshot = () => {};
  });

  test("its last_active_at moves with the operation", async () => {
    holds("x");
    const read = async () => (await control.ask(`GET /v1/sessions/${id}`)).body.last_active_at;
    const before = await read();
    await new Promise((resolve) => setTimeout(resolve, 5));
    await files("?path=a");
    expect((await read()) > before).toBe(true);
  });

  test("it is not idle while an operation is in flight", async () => {
    const lazy = await control.createLive({ idle_timeout_ms: 1 });
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onGuest = async (call) => {
      await promise;
      call.bytes(Buffer.from("x"));
    };
    const read = files("?path=a", lazy);
    await new Promise((done) => setTimeout(done, 3_500));
    expect((await control.ask(`GET /v1/sessions/${lazy}`)).body.state).toBe("live");
    resolve();
    expect((await read).status).toBe(200);
    await untilPaused(lazy);
  });
});

describe("faults underneath", () => {
  test("an answer that breaks off is a retryable 503: nothing was changed", async () => {
    control.node.onGuest = (call) => {
      call.response.writeHead(200, { "content-length": 100 });
      call.response.write("half");
      setTimeout(() => call.breakOff(), 20);
    };
    const answer = await files("?path=a");
    expect([answer.status, answer.body.code]).toEqual([503, "session_unavailable"]);
    expect(answer.headers["retry-after"]).toBe("2");
  });

  test("a session that is paused under a read says so, and that it may be tried again", async () => {
    const victim = await control.createLive();
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onGuest = () => resolve();
    const read = files("?path=a", victim);
    await promise;
    expect((await control.ask(`POST /v1/sessions/${victim}/pause`)).status).toBe(200);
    const answer = await read;
    expect([answer.status, answer.body.code]).toEqual([409, "session_not_live"]);
    expect((await control.ask(`GET /v1/sessions/${victim}`)).body.state).toBe("paused");
  });

  test("a session that is destroyed under a read is 410", async () => {
    const victim = await control.createLive();
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onGuest = () => resolve();
    const read = files("?path=a", victim);
    await promise;
    await control.ask(`DELETE /v1/sessions/${victim}`);
    const answer = await read;
    expect([answer.status, answer.body.code]).toEqual([410, "session_ended"]);
  });

  test.each([
    ["no list", Buffer.from("<html>")],
    ["a list with an end of another shape", encodeList(["a"], { truncated: "all" })],
    ["a list with a number where a name should be", encodeList([1], { truncated: false })],
  ])("an answer that is %s is 502", async (_name, bytes) => {
    control.node.onGuest = (call) => call.bytes(bytes);
    const { status, body } = await files("?op=list");
    expect([status, body.code]).toEqual([502, "bad_gateway"]);
  });

  test.each([
    ["that breaks off", encodeFrame(FRAME.items, '"a"\n')],
    ["of which nothing comes", Buffer.alloc(0)],
    ["that ends with an error", encodeFrame(FRAME.error, "the guest's own words")],
  ])("a list %s is 503, without words of the guest", async (_name, bytes) => {
    control.node.onGuest = (call) => call.bytes(bytes);
    const { status, body, text } = await files("?op=list");
    expect([status, body.code]).toEqual([503, "session_unavailable"]);
    expect(text).not.toContain("own words");
  });

  test("an agent that does not answer is 503 session_unavailable", async () => {
    refuses("agent_unavailable");
    const { status, body } = await files("?op=list");
    expect([status, body.code]).toEqual([503, "session_unavailable"]);
  });
});
