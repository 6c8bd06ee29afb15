/**
 * What every implementation of contract/node does with files, processes, terminals and the tunnel of a machine. The
 * scenarios share one machine, and keep to paths and names of their own.
 */
import { createHash, randomBytes } from "node:crypto";
import { once } from "node:events";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { buffer } from "node:stream/consumers";
import {
  encodeTerminalFrame,
  FRAME,
  FrameDecoder,
  GuestProcess,
  LISTS,
  LogEnd,
  TERMINAL_FRAME,
  TerminalFrameDecoder,
} from "@vivarium/contract/guest";
import { UploadWritten } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { eventually } from "../support/eventually.ts";
import { readList } from "../support/guest-lists.ts";
import { type ContractedNode, startSpec } from "./node-contract.ts";

const MIB = 1024 * 1024;
const sh = (script: string) => ["sh", "-c", script];

export function guestContract(makeNode: () => Promise<ContractedNode>): void {
  let node: ContractedNode;
  const machineId = `${randomId()}-1`;
  const path = `/v1/machines/${machineId}`;

  beforeAll(async () => {
    node = await makeNode();
    expect(await node.call("PUT", path, startSpec({ hostname: "guest" }))).toMatchObject({ status: 200 });
  });
  afterAll(async () => {
    await node?.call("DELETE", path);
    await node?.close?.();
  });

  const ask = (method: string, target: string, body?: object | Buffer) =>
    node.guest(machineId, method, target, body);
  const run = async (script: string) => (await node.exec(machineId, { argv: sh(script) })).stdout.toString();
  const write = (file: string, content: string | Buffer) =>
    ask("PUT", `/files/write?path=${encodeURIComponent(file)}`, Buffer.from(content));
  const read = (file: string, more = "") => ask("GET", `/files/read?path=${encodeURIComponent(file)}${more}`);
  const list = async (dir: string) => {
    const { items, end } = readList(LISTS.entries, (await ask("GET", `/files/list?path=${dir}`)).bytes);
    return { entries: items, ...end };
  };
  const begin = (method: string, target: string) => node.beginGuest(machineId, method, target);

  describe("a file of the guest", () => {
    test("is written whole, with its parents, and read back byte for byte", async () => {
      const content = randomBytes(3 * MIB);
      const written = UploadWritten.parse((await write("up/and/down.bin", content)).body);
      const sha256 = createHash("sha256").update(content).digest("hex");
      expect(written).toMatchObject({ bytes: content.length, sha256 });
      const back = await read("/workspace/up/and/down.bin");
      expect(back.headers["content-length"]).toBe(String(content.length));
      expect(back.bytes.equals(content)).toBe(true);
      expect(await run("sha256sum < up/and/down.bin")).toBe(`${sha256}  -\n`);
    });

    test("may be empty", async () => {
      expect(await write("empty", "")).toMatchObject({ status: 200, body: { bytes: 0 } });
      expect(await read("empty")).toMatchObject({ status: 200, bytes: Buffer.alloc(0) });
    });

    test("whose upload breaks off stays as it was, and nothing is left beside it", async () => {
      await write("broken/file", "before");
      const call = begin("PUT", "/files/write?path=broken/file");
      if (!call.write(Buffer.alloc(8 * MIB))) await once(call, "drain");
      call.destroy();
      await eventually(async () => expect((await list("broken")).entries).toEqual(["file"]));
      expect((await read("broken/file")).bytes.toString()).toBe("before");
    });

    test("is refused when it is larger than the caller reads", async () => {
      await write("large", "12345");
      expect(await read("large", "&max_bytes=4")).toMatchObject(refusal(400, "too_large"));
      expect(await read("large", "&max_bytes=5")).toMatchObject({ status: 200 });
    });

    test("is listed, renamed and deleted", async () => {
      await ask("POST", "/files/mkdir", { path: "place/deep" });
      await write("place/b", "b");
      await write("place/.a", "a");
      expect(await list("place")).toEqual({ entries: [".a", "b", "deep/"], truncated: false });
      const moved = await ask("POST", "/files/rename", { path: "place/b", dest_path: "place/new/c" });
      expect(moved).toMatchObject({ status: 200, body: {} });
      expect(await list("place/new")).toMatchObject({ entries: ["c"] });
      const full = await ask("DELETE", "/files?path=place");
      expect(full).toMatchObject(refusal(409, "directory_not_empty"));
      expect(await ask("DELETE", "/files?path=place/deep")).toMatchObject({ status: 200 });
      expect(await ask("DELETE", "/files?path=place&recursive=true")).toMatchObject({ status: 200 });
      expect(await ask("GET", "/files/list?path=place")).toMatchObject(refusal(404, "no_such_file"));
    });

    test("is found by its name, and by what it holds", async () => {
      await write("search/one.ts", "first\nneedle here\nlast\n");
      await write("search/sub/two.ts", "NEEDLE\n");
      await write("search/skip/three.ts", "needle\n");
      await write("search/four.md", "needle\n");
      const found = await ask("GET", "/files/find?path=search&pattern=**/*.ts&max_results=10");
      expect(readList(LISTS.paths, found.bytes)).toMatchObject({
        items: ["one.ts", "skip/three.ts", "sub/two.ts"].map((name) => `/workspace/search/${name}`),
        end: { truncated: false },
      });
      const query =
        "path=search&pattern=need.e&max_results=10&file_pattern=*.ts&exclude_dirs=skip&context_lines=1";
      const lines = readList(LISTS.matches, (await ask("GET", `/files/grep?${query}`)).bytes);
      expect(lines.end).toMatchObject({ files_searched: 2, truncated: false });
      const [one, two, ...rest] = lines.items;
      expect(one).toEqual({
        path: "/workspace/search/one.ts",
        line_number: 2,
        line: "needle here",
        before: ["first"],
        after: ["last"],
      });
      expect(two).toMatchObject({ path: "/workspace/search/sub/two.ts", line_number: 1, line: "NEEDLE" });
      expect(rest).toEqual([]);
    });

    test("is searched for by patterns that need no going back alone", async () => {
      const grep = await ask(
        "GET",
        `/files/grep?path=.&max_results=1&pattern=${encodeURIComponent("(a)\\1")}`,
      );
      expect(grep).toMatchObject(refusal(400, "bad_pattern"));
    });

    test("is refused for what it is, each in words of its own", async () => {
      await write("kinds/file", "x");
      await run("mkfifo kinds/pipe; ln -s /etc kinds/out");
      const cases = [
        [await read("nowhere"), 404, "no_such_file"],
        [await read("kinds/file/below"), 404, "parent_not_a_directory"],
        [await read("kinds"), 400, "is_a_directory"],
        [await read("kinds/pipe"), 400, "not_a_regular_file"],
        [await ask("GET", "/files/list?path=kinds/file"), 400, "not_a_directory"],
        [await read("../etc/passwd"), 400, "outside_workspace"],
        [await read("/etc/passwd"), 400, "outside_workspace"],
        [await read("kinds/out/passwd"), 400, "outside_workspace"],
        [await write("kinds/out/new", "x"), 400, "outside_workspace"],
        [await write("kinds", "x"), 400, "is_a_directory"],
        [await ask("POST", "/files/mkdir", { path: "kinds/file" }), 409, "file_exists"],
        [await ask("DELETE", "/files?path=/workspace&recursive=true"), 400, "workspace_root"],
      ] as const;
      for (const [answer, status, code] of cases) expect(answer).toMatchObject(refusal(status, code));
    });

    test("that is a link is removed as one", async () => {
      await run("mkdir -p links && ln -s /etc/hostname links/link");
      expect(await ask("DELETE", "/files?path=links/link")).toMatchObject({ status: 200 });
      expect(await run("ls links; test -e /etc/hostname && echo kept")).toBe("kept\n");
    });

    test("is asked for by no other call", async () => {
      for (const [method, target] of [
        ["GET", "/files/chown?path=a"],
        ["PUT", "/files/read?path=a"],
        ["POST", "/exec"],
      ] as const)
        expect(await ask(method, target)).toMatchObject(refusal(400, "invalid"));
    });
  });

  describe("a named process", () => {
    const start = (name: string, script: string) =>
      ask("POST", "/processes", { name, argv: sh(script), env: { WORD: "hello" }, keep_alive: false });
    const get = async (name: string) => GuestProcess.parse((await ask("GET", `/processes/${name}`)).body);
    const logs = async (name: string, query: string) =>
      readLog((await ask("GET", `/processes/${name}/logs?${query}`)).bytes);

    test("runs by its name until it exits, and its log outlives it", async () => {
      const started = GuestProcess.parse((await start("short", "echo $WORD; echo no >&2; exit 3")).body);
      expect(started).toMatchObject({
        name: "short",
        argv: expect.arrayContaining(["-c"]),
        keep_alive: false,
      });
      expect(started.pid).toBeGreaterThan(0);
      await eventually(async () =>
        expect(await get("short")).toMatchObject({ state: "exited", exit_code: 3 }),
      );
      expect(await logs("short", "tail_bytes=1000")).toMatchObject({ stdout: "hello\n", stderr: "no\n" });
      expect(await logs("short", "tail_bytes=3")).toMatchObject({
        stdout: "lo\n",
        end: { stdout_truncated: true, stderr_truncated: false },
      });
      expect(await logs("short", "follow=true")).toMatchObject({ stdout: "hello\n", stderr: "no\n" });
    });

    test("that cannot be spawned has exited at once, and says why", async () => {
      const body = { name: "absent", argv: ["no-such-command"], env: {}, keep_alive: true };
      const answer = await ask("POST", "/processes", body);
      expect(GuestProcess.parse(answer.body)).toMatchObject({
        state: "exited",
        exit_code: 127,
        keep_alive: true,
      });
      expect((await logs("absent", "tail_bytes=1000")).stderr).toMatch(/^.+\n$/);
    });

    test("is one at a time, and its name is free again once it has exited", async () => {
      await start("twin", "sleep 600");
      expect(await start("twin", "true")).toMatchObject(refusal(409, "process_exists"));
      const killed = GuestProcess.parse((await ask("DELETE", "/processes/twin")).body);
      expect(killed).toMatchObject({ state: "exited", exit_code: 143 });
      expect(await ask("DELETE", "/processes/twin")).toMatchObject({ status: 200, body: killed });
      expect(await start("twin", "true")).toMatchObject({ status: 200 });
      const { items } = readList(LISTS.processes, (await ask("GET", "/processes")).bytes);
      expect(items.filter(({ name }) => name === "twin")).toHaveLength(1);
    });

    test("that ignores a request to end is killed", async () => {
      await start("stubborn", "trap '' TERM; echo ready; while :; do sleep 1; done");
      await eventually(async () =>
        expect(await logs("stubborn", "tail_bytes=10")).toMatchObject({ stdout: "ready\n" }),
      );
      const killed = await ask("DELETE", "/processes/stubborn");
      expect(killed).toMatchObject({ status: 200, body: { exit_code: 137 } });
    });

    test("that nobody knows, or whose cwd is missing, is refused", async () => {
      const unknown = refusal(404, "process_not_found");
      expect(await ask("GET", "/processes/nobody")).toMatchObject(unknown);
      expect(await ask("DELETE", "/processes/nobody")).toMatchObject(unknown);
      expect(await ask("GET", "/processes/nobody/logs?tail_bytes=1")).toMatchObject(unknown);
      const lost = { name: "lost", argv: ["true"], env: {}, cwd: "/no/such/place", keep_alive: false };
      expect(await ask("POST", "/processes", lost)).toMatchObject(refusal(400, "cwd_not_found"));
    });

    test("is followed as it writes, up to its end, and goes on when a follower leaves", async () => {
      await start("ticks", "echo first; while [ ! -e go ]; do sleep 0.1; done; echo last");
      const leaving = await follow("ticks");
      leaving.response.destroy();
      const staying = await follow("ticks");
      await run("touch go");
      const log = readLog(Buffer.concat([staying.first, await buffer(staying.response)]));
      expect(log).toMatchObject({ stdout: "first\nlast\n", stderr: "" });
      await eventually(async () =>
        expect(await get("ticks")).toMatchObject({ state: "exited", exit_code: 0 }),
      );
    });

    async function follow(name: string) {
      const call = begin("GET", `/processes/${name}/logs?follow=true`).end();
      const [response] = (await once(call, "response")) as [IncomingMessage];
      const [first] = (await once(response, "data")) as [Buffer];
      response.pause();
      return { response, first };
    }
  });

  describe("a terminal", () => {
    const spec = { env: { TERM: "xterm" }, rows: 31, cols: 91 };

    test("runs its program in a terminal of its size, and ends with its exit", async () => {
      const socket = await openStream("terminals", { ...spec, argv: sh("stty size; echo $TERM; exit 7") });
      const { output, exit } = readTerminal(await buffer(socket));
      expect(output).toMatch(/31 91\r\nxterm\r\n/);
      expect(exit).toBe(7);
    });

    test("passes on what is typed", async () => {
      const argv = sh("read line; echo got $line");
      const socket = await openStream("terminals", { ...spec, argv });
      socket.write(encodeTerminalFrame(TERMINAL_FRAME.data, Buffer.from("words\r")));
      const { output, exit } = readTerminal(await buffer(socket));
      expect(output).toContain("got words\r\n");
      expect(exit).toBe(0);
    });

    test("is hung up when its client leaves", async () => {
      const tag = `31${Date.now() % 1_000_000}`;
      const count = async () => Number(await run(`pgrep -xfc 'sleep ${tag}'`));
      const socket = await openStream("terminals", { ...spec, argv: ["sleep", tag] });
      await eventually(async () => expect(await count()).toBe(1));
      socket.destroy();
      await eventually(async () => expect(await count()).toBe(0));
    });

    test("is refused in words when its opening does not fit, or its cwd is missing", async () => {
      const unfit = await node.stream(machineId, "terminals", { ...spec, rows: 0 });
      expect(unfit).toMatchObject({ refusal: { code: "invalid" } });
      const lost = await node.stream(machineId, "terminals", { ...spec, cwd: "/no/such/place" });
      expect(lost).toMatchObject({ refusal: { code: "cwd_not_found" } });
    });

    test("of no machine is refused before the upgrade", async () => {
      const nobody = await node.stream(`${randomId()}-1`, "terminals", spec);
      expect(nobody).toMatchObject({ refusal: { code: "machine_not_found" } });
    });
  });

  test("the tunnel leads to an SSH server", async () => {
    const socket = await openStream("tunnel", { env: {} });
    const arrived = once(socket, "data");
    socket.resume();
    expect(String((await arrived)[0])).toMatch(/^SSH-2\.0-/);
    socket.destroy();
  });

  test("what is under way breaks off when the machine is held, and when it is deleted", async () => {
    const doomed = `${randomId()}-1`;
    const snapshot = `chk_${randomId()}`;
    await node.call("PUT", `/v1/machines/${doomed}`, startSpec({ hostname: "doomed" }));
    const open = async () => {
      const stream = await node.stream(doomed, "tunnel", { env: {} });
      if ("refusal" in stream) throw new Error(stream.refusal.message);
      return { closed: once(stream.socket.resume(), "close") };
    };
    try {
      const held = await open();
      await node.call("PUT", `/v1/snapshots/${snapshot}`, { machine_id: doomed, after: "hold" });
      await held.closed;
      const refused = await node.guest(doomed, "GET", "/files/list?path=.");
      expect(refused).toMatchObject(refusal(409, "machine_held"));
      expect(await node.stream(doomed, "tunnel", { env: {} })).toMatchObject({
        refusal: { code: "machine_held" },
      });
      await node.call("POST", `/v1/machines/${doomed}/continue`);
      const deleted = await open();
      await node.call("DELETE", `/v1/machines/${doomed}`);
      await deleted.closed;
    } finally {
      await node.call("DELETE", `/v1/machines/${doomed}`);
      await node.call("DELETE", `/v1/snapshots/${snapshot}`);
    }
  });

  async function openStream(kind: "terminals" | "tunnel", spec: object): Promise<Socket> {
    const stream = await node.stream(machineId, kind, spec);
    if ("refusal" in stream) throw new Error(`${stream.refusal.code}: ${stream.refusal.message}`);
    return stream.socket;
  }
}

function refusal(status: number, code: string) {
  return { status, body: { code, message: expect.stringMatching(/./) } };
}

/** A whole log; its end is the last frame. */
function readLog(bytes: Buffer) {
  const frames = [...new FrameDecoder().push(bytes)];
  const text = (type: number) =>
    Buffer.concat(frames.filter((frame) => frame.type === type).map(({ payload }) => payload)).toString();
  const last = frames.at(-1);
  expect(last?.type).toBe(FRAME.eof);
  return {
    stdout: text(FRAME.stdout),
    stderr: text(FRAME.stderr),
    end: LogEnd.parse(JSON.parse(String(last?.payload))),
  };
}

/** All that a terminal showed; its exit is the last frame. */
function readTerminal(bytes: Buffer) {
  const frames = [...new TerminalFrameDecoder().push(bytes)];
  const shown = frames.filter(({ type }) => type === TERMINAL_FRAME.data).map(({ payload }) => payload);
  const last = frames.at(-1);
  expect(last?.type).toBe(TERMINAL_FRAME.exit);
  return { output: Buffer.concat(shown).toString(), exit: last?.payload.readInt32BE() };
}
