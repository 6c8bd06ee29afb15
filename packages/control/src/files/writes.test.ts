/** Writing, deleting, making and renaming files over a fake node. */

import { type GuestRequest, Refusal } from "@vivarium/contract/test-support/node";
import { afterAll, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { type Control, eventually, startControl } from "../../test-support/control.ts";

const MIB = 2 ** 20;
let control: Control;
let id: string;
/** The guest's files, by requested path. */
const held = new Map<string, Buffer>();
beforeAll(async () => {
  control = await startControl();
  id = await control.createLive();
});
beforeEach(() => {
  held.clear();
  control.node.guestCalls.length = 0;
  control.node.onGuest = take;
});
afterAll(() => control.close());

async function take(call: GuestRequest): Promise<void> {
  const body = await call.body();
  if (call.call !== "PUT files/write") return call.json({});
  const path = call.query.path as string;
  if (path.includes("denied")) throw new Refusal("permission_denied");
  held.set(path, body);
  call.json({ bytes: body.length, sha256: "0".repeat(64), duration_us: 1 });
}

const ask = (call: string, body?: object, session = id) => {
  const [method, rest = ""] = call.split(" ");
  return control.ask(`${method} /v1/sessions/${session}/files${rest}`, { body });
};
const written = () => Object.fromEntries([...held].map(([path, bytes]) => [path, bytes.toString("latin1")]));

describe("write", () => {
  test("text is written as UTF-8, and its bytes are counted", async () => {
    const { status, body } = await ask("PUT ", { path: "a/b.txt", content: "grüße" });
    expect([status, body]).toEqual([200, { path: "a/b.txt", bytes: 7 }]);
    expect(held.get("a/b.txt")?.toString()).toBe("grüße");
  });

  test("base64 is decoded", async () => {
    const { body } = await ask("PUT ", { path: "a", content: "/wA=", encoding: "base64" });
    expect(body).toEqual({ path: "a", bytes: 2 });
    expect(held.get("a")).toEqual(Buffer.from([0xff, 0x00]));
  });

  test("an empty content makes an empty file", async () => {
    expect((await ask("PUT ", { path: "a", content: "" })).body).toEqual({ path: "a", bytes: 0 });
    expect(held.get("a")?.length).toBe(0);
  });

  test("8 MiB are written, one byte more is payload_too_large, in both encodings", async () => {
    const most = Buffer.alloc(8 * MIB, "x");
    const over = Buffer.alloc(8 * MIB + 1, "x");
    expect((await ask("PUT ", { path: "a", content: most.toString() })).body.bytes).toBe(8 * MIB);
    for (const file of [
      { content: over.toString() },
      { content: over.toString("base64"), encoding: "base64" },
    ]) {
      const { status, body } = await ask("PUT ", { path: "b", ...file });
      expect([status, body.code]).toEqual([400, "payload_too_large"]);
      expect(body.error).toMatch(/^content: must be at most 8388608 bytes, got 8388609/);
    }
    expect(held.has("b")).toBe(false);
  });

  test("a body over 32 MiB is refused unread, 1 MiB is no limit here", async () => {
    const answer = await ask("PUT ", { path: "a", content: "x".repeat(32 * MIB) });
    expect([answer.status, answer.body]).toEqual([
      400,
      { error: "request body: must be at most 33554432 bytes of JSON", code: "payload_too_large" },
    ]);
    expect((await ask("PUT ", { path: "a", content: "x".repeat(2 * MIB) })).status).toBe(200);
    const mkdir = await ask("POST /mkdir", { path: "a", more: "x".repeat(2 * MIB) });
    expect([mkdir.status, mkdir.body.code]).toEqual([400, "payload_too_large"]);
  });

  test.each([
    [{}, /^path: must be a string, got nothing$/],
    [{ path: "a" }, /^content: must be a string, got nothing$/],
    [{ path: "", content: "" }, /^path: must not be empty/],
    [{ path: "/etc/x", content: "" }, /^path: path must be under \/workspace/],
    [{ path: "a", content: 1 }, /^content: must be a string/],
    [{ path: "a", content: "\ud800" }, /^content: must be valid Unicode/],
    [{ path: "a", content: "x", encoding: "hex" }, /^encoding: must be one of "text", "base64", got "hex"$/],
    [{ path: "a", content: "/wA", encoding: "base64" }, /^content: must be base64/],
    [{ path: "a", content: "/w A", encoding: "base64" }, /^content: must be base64/],
    [{ path: "a", content: "_w==", encoding: "base64" }, /^content: must be base64/],
    [{ path: "a", content: "=AAA", encoding: "base64" }, /^content: must be base64/],
  ])("%j is refused before the session is looked up", async (body, message) => {
    const answer = await ask("PUT ", body, "c".repeat(21));
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(message);
  });

  test("a null encoding is an omitted one", async () => {
    expect((await ask("PUT ", { path: "a", content: "x", encoding: null })).status).toBe(200);
  });

  test("a write whose answer breaks off is not called retryable: it may have been made", async () => {
    control.node.onGuest = (call) => call.breakOff();
    const answer = await ask("PUT ", { path: "a", content: "x" });
    expect([answer.status, answer.body.code]).toEqual([500, "internal"]);
    expect(answer.headers["retry-after"]).toBeUndefined();
    expect(control.node.guestCalls.length).toBe(1);
  });

  test("so is one whose answer cannot be understood", async () => {
    control.node.onGuest = (call) => call.json({ bytes: "many" });
    const answer = await ask("PUT ", { path: "a", content: "x" });
    expect([answer.status, answer.body.code]).toEqual([500, "internal"]);
  });

  test("a session that is paused under a write answers 409 conflict", async () => {
    const victim = await control.createLive();
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onGuest = () => resolve();
    const write = ask("PUT ", { path: "a", content: "x" }, victim);
    await promise;
    await control.ask(`POST /v1/sessions/${victim}/pause`);
    const answer = await write;
    expect([answer.status, answer.body.code]).toEqual([409, "conflict"]);
    expect(answer.body.error).toMatch(/^the session was paused during this change of its files/);
  });

  test("a write that a stopped machine refused is repeated with the same bytes", async () => {
    const victim = await control.createLive();
    const { promise, resolve } = Promise.withResolvers<void>();
    control.node.onSnapshot = () => promise;
    const pause = control.ask(`POST /v1/sessions/${victim}/pause`);
    await eventually(async () => {
      const { rows } = await control.sql.query("select op from sessions where id = $1", [victim]);
      expect(rows[0].op).toBe("pause");
    });
    const write = ask("PUT ", { path: "a", content: "once" }, victim);
    resolve();
    await pause;
    expect((await write).status).toBe(200);
    expect(written()).toEqual({ a: "once" });
    control.node.onSnapshot = () => {};
  });
});

describe("batch", () => {
  test("each file has its own outcome, in the order of the request", async () => {
    const { status, body } = await ask("PUT /batch", {
      files: [
        { path: "one", content: "1" },
        { path: "/etc/two", content: "2" },
        { path: "three", content: "?", encoding: "base64" },
        { path: "denied", content: "4" },
        { path: "", content: "5" },
        { path: "six", content: "/w==", encoding: "base64" },
      ],
    });
    expect(status).toBe(200);
    expect(body).toEqual({
      results: [
        { path: "one", ok: true },
        {
          path: "/etc/two",
          ok: false,
          error: expect.stringMatching(/^path: path must be under \/workspace/),
        },
        { path: "three", ok: false, error: expect.stringMatching(/^content: must be base64/) },
        { path: "denied", ok: false, error: "path: permission denied" },
        { path: "", ok: false, error: expect.stringMatching(/^path: must not be empty/) },
        { path: "six", ok: true },
      ],
      duration_ms: expect.any(Number),
    });
    expect(written()).toEqual({ one: "1", six: "\xff" });
  });

  test("files are written one after the other: of one path the last stays", async () => {
    await ask("PUT /batch", { files: ["1", "2", "3"].map((content) => ({ path: "a", content })) });
    expect(written()).toEqual({ a: "3" });
  });

  test("no files give no results", async () => {
    expect((await ask("PUT /batch", { files: [] })).body).toEqual({
      results: [],
      duration_ms: expect.any(Number),
    });
  });

  test("64 files are written, 65 are refused as a whole", async () => {
    const files = Array.from({ length: 65 }, (_, index) => ({ path: `f${index}`, content: "x" }));
    const { status, body } = await ask("PUT /batch", { files });
    expect([status, body.code]).toEqual([400, "validation"]);
    expect(body.error).toMatch(/^files: must hold at most 64 files, got an array of 65$/);
    expect(written()).toEqual({});
    expect((await ask("PUT /batch", { files: files.slice(1) })).body.results).toHaveLength(64);
  });

  test("8 MiB together are written, one byte more is payload_too_large and nothing is written", async () => {
    const half = "x".repeat(4 * MIB);
    const files = [
      { path: "a", content: half },
      { path: "b", content: half },
    ];
    expect((await ask("PUT /batch", { files })).body.results).toEqual([
      { path: "a", ok: true },
      { path: "b", ok: true },
    ]);
    held.clear();
    const over = [...files, { path: "c", content: "eA==", encoding: "base64" }];
    const { status, body } = await ask("PUT /batch", { files: over });
    expect([status, body.code]).toEqual([400, "payload_too_large"]);
    expect(written()).toEqual({});
  });

  test("content that is not Unicode fails its file, and is not written as something else", async () => {
    const { body } = await ask("PUT /batch", {
      files: [
        { path: "a", content: "\ud800" },
        { path: "b", content: "x" },
      ],
    });
    expect(body.results).toEqual([
      { path: "a", ok: false, error: expect.stringMatching(/^content: must be valid Unicode/) },
      { path: "b", ok: true },
    ]);
  });

  test("a single file over the total is refused the same way", async () => {
    const { status, body } = await ask("PUT /batch", {
      files: [
        { path: "a", content: "small" },
        { path: "b", content: "x".repeat(8 * MIB + 1) },
      ],
    });
    expect([status, body.code]).toEqual([400, "payload_too_large"]);
    expect(written()).toEqual({});
  });

  test.each([
    [{}, /^files: must be an array, got nothing$/],
    [{ files: [{ content: "x" }] }, /^files\[0\]\.path: must be a string/],
    [{ files: [{ path: "a" }] }, /^files\[0\]\.content: must be a string/],
    [
      { files: [{ path: "a", content: "", encoding: "x" }] },
      /^files\[0\]\.encoding: must be one of "text", "base64"/,
    ],
  ])("%j is refused as a whole", async (body, message) => {
    const answer = await ask("PUT /batch", body);
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(message);
  });

  test("a machine that cannot be reached fails the call, which may be made again", async () => {
    control.node.onGuest = () => {
      throw new Refusal("agent_unavailable");
    };
    const { status, body } = await ask("PUT /batch", { files: [{ path: "a", content: "x" }] });
    expect([status, body.code]).toEqual([503, "session_unavailable"]);
  });
});

describe("delete, mkdir and rename", () => {
  const calls = () => control.node.guestCalls.map(({ call, query }) => ({ call, query }));

  test("delete asks for a tree only with recursive=true", async () => {
    expect((await ask("DELETE ?path=a")).body).toEqual({ ok: true, path: "a" });
    expect((await ask("DELETE ?path=b&recursive=true")).body).toEqual({ ok: true, path: "b" });
    expect((await ask("DELETE ?path=c&recursive=0")).body).toEqual({ ok: true, path: "c" });
    expect(calls()).toEqual([
      { call: "DELETE files", query: { path: "a" } },
      { call: "DELETE files", query: { path: "b", recursive: "true" } },
      { call: "DELETE files", query: { path: "c" } },
    ]);
  });

  test("mkdir and rename send their paths and echo them", async () => {
    const bodies: unknown[] = [];
    control.node.onGuest = async (call) => {
      bodies.push([call.call, JSON.parse((await call.body()).toString())]);
      call.json({});
    };
    expect((await ask("POST /mkdir", { path: "a/b" })).body).toEqual({ path: "a/b" });
    expect((await ask("POST /rename", { path: "a", dest_path: "/workspace/c" })).body).toEqual({
      path: "a",
      dest_path: "/workspace/c",
    });
    expect(bodies).toEqual([
      ["POST files/mkdir", { path: "a/b" }],
      ["POST files/rename", { path: "a", dest_path: "/workspace/c" }],
    ]);
  });

  test.each([
    ["directory_not_empty", "DELETE ?path=d", 409, "conflict", "path: directory not empty"],
    [
      "workspace_root",
      "DELETE ?path=/workspace&recursive=true",
      400,
      "validation",
      "path: the workspace root cannot be removed or renamed",
    ],
    ["file_exists", "POST /mkdir", 409, "conflict", "path: file exists"],
    ["no_space", "POST /mkdir", 409, "conflict", "path: no space left on device"],
  ] as const)("%s on %s is %i %s", async (refusal, call, status, code, error) => {
    control.node.onGuest = () => {
      throw new Refusal(refusal);
    };
    const answer = await ask(call, call.startsWith("POST") ? { path: "d" } : undefined);
    expect([answer.status, answer.body]).toEqual([status, { error, code }]);
  });

  test.each([
    ["a", "l/b", "l/b: leads to /etc", "dest_path"],
    // As the node sends it: without non-ASCII characters, and cut.
    ["a", "größe/\u{1f600}", "gr  e/  : leads to /etc", "dest_path"],
    ["a", `l/${"d/".repeat(1000)}`, `l/${"d/".repeat(511)}`, "dest_path"],
    ["l/b", "a", "l/b: leads to /etc", "path"],
    ["ä", "ö", " : leads to /etc", "path"],
  ])(
    "a refused rename of %s names the field of the path that is refused",
    async (path, dest_path, said, field) => {
      control.node.onGuest = () => {
        throw new Refusal("outside_workspace", said);
      };
      const { status, body } = await ask("POST /rename", { path, dest_path });
      expect([status, body.error]).toEqual([400, `${field}: path must be under /workspace`]);
    },
  );

  test.each([
    ["DELETE ", undefined, /^path: must be a string, got nothing$/],
    ["DELETE ?path=a&recursive=yes", undefined, /^recursive: must be one of/],
    ["DELETE ?path=/etc", undefined, /^path: path must be under/],
    ["POST /mkdir", {}, /^path: must be a string, got nothing$/],
    ["POST /mkdir", { path: "../x" }, /^path: path must be under/],
    ["POST /rename", { path: "a" }, /^dest_path: must be a string, got nothing$/],
    ["POST /rename", { path: "a", dest_path: "/tmp/x" }, /^dest_path: path must be under/],
  ])("%s with %j is refused before the session is looked up", async (call, body, message) => {
    const answer = await ask(call, body, "d".repeat(21));
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(message);
  });
});

describe("the older way to call files", () => {
  test("reads, writes and lists, and ignores timeout_ms", async () => {
    expect((await ask("POST ", { op: "write", path: "a", content: "x", timeout_ms: 5 })).body).toEqual({
      path: "a",
      bytes: 1,
    });
    control.node.onGuest = (call) =>
      call.call === "GET files/list"
        ? call.json({ entries: ["a"], truncated: false })
        : call.bytes(Buffer.from("x"));
    expect((await ask("POST ", { op: "read", path: "a" })).body).toEqual({ content: "x" });
    expect((await ask("POST ", { op: "read", path: "a", encoding: "base64" })).body).toEqual({
      content: "eA==",
      encoding: "base64",
    });
    expect((await ask("POST ", { op: "list", path: "d" })).body).toEqual({ entries: ["a"] });
    expect(control.node.guestCalls.at(-1)?.query.path).toBe("d");
  });

  test.each([
    [{ op: "delete", path: "a" }, /^op: must be one of "read", "write", "list", got "delete"$/],
    [{ path: "a" }, /^op: must be one of/],
    [{ op: "read" }, /^path: must be a string, got nothing$/],
    [{ op: "write", path: "a" }, /^content: must be a string, got nothing$/],
    [{ op: "list", path: "/etc" }, /^path: path must be under/],
  ])("%j is refused before the session is looked up", async (body, message) => {
    const answer = await ask("POST ", body, "e".repeat(21));
    expect([answer.status, answer.body.code]).toEqual([400, "validation"]);
    expect(answer.body.error).toMatch(message);
  });
});
