import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Server, type ServerResponse } from "node:http";
import type { Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setImmediate } from "node:timers/promises";
import { encodeFrame, FRAME, type Frame } from "@vivarium/contract/guest";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { NodeClient } from "./node-client.ts";

const CALL = { argv: ["true"], env: {}, timeout_ms: 1000 };
const EXIT = encodeFrame(
  FRAME.exit,
  JSON.stringify({
    exit_code: 0,
    timed_out: false,
    duration_us: 1,
    stdout_truncated: false,
    stderr_truncated: false,
  }),
);
const never = new AbortController().signal;

let dir: string;
let server: Server;
let client: NodeClient;
let connections: Set<Socket>;
let opened: number;
let commands: number;
let answered: Promise<unknown>;
let answer: (response: ServerResponse) => void;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), "node-client-"));
  connections = new Set();
  opened = commands = 0;
  answer = (response) => response.end(EXIT);
  server = createServer((request, response) => {
    request.resume().once("end", () => {
      commands += 1;
      answered = once(response, "close");
      answer(response);
    });
  });
  server.on("connection", (socket) => {
    opened += 1;
    connections.add(socket);
    socket.once("close", () => connections.delete(socket));
  });
  server.listen(join(dir, "node.sock"));
  await once(server, "listening");
  client = new NodeClient(join(dir, "node.sock"));
});

afterEach(async () => {
  client.close();
  for (const socket of connections) socket.destroy();
  server.close();
  await rm(dir, { recursive: true, force: true });
});

const exec = () => client.exec("m-1", CALL, never);

/** Reads up to the command's end, and not to the end of the stream, as its users do. */
async function lastFrame(frames: AsyncIterable<Frame>): Promise<Frame["type"] | undefined> {
  for await (const { type } of frames) if (type === FRAME.exit) return type;
  return undefined;
}

describe("connections of commands", () => {
  test("commands one after the other go over one connection", async () => {
    for (let i = 0; i < 3; i++) {
      expect(await lastFrame(await exec())).toBe(FRAME.exit);
      await isFree();
    }
    expect({ commands, opened }).toEqual({ commands: 3, opened: 1 });
  });

  test("a command whose reader leaves before its end loses its connection, which kills it", async () => {
    answer = (response) => response.write(encodeFrame(FRAME.stdout, "x"));
    const [socket] = await Promise.all([
      once(server, "connection").then(([each]) => each as Socket),
      exec().then(async (frames) => {
        for await (const _ of frames) break;
      }),
    ]);
    // It may end with a reset, on which `once` would reject.
    await new Promise((resolve) => socket.once("close", resolve));
    expect(connections.size).toBe(0);
  });

  test("a command that meets a kept connection closed runs once, over another one", async () => {
    await lastFrame(await exec());
    await isFree();
    // In the same tick as the call, so that it cannot know yet.
    for (const socket of connections) socket.destroy();
    expect(await lastFrame(await exec())).toBe(FRAME.exit);
    expect({ commands, opened }).toEqual({ commands: 2, opened: 2 });
  });

  test("a command that may have begun is never sent again", async () => {
    await lastFrame(await exec());
    await isFree();
    answer = (response) => response.destroy();
    await expect(exec()).rejects.toMatchObject({ failure: "broken" });
    expect({ commands, opened }).toEqual({ commands: 2, opened: 1 });
  });
});

/** The end of an answer comes after its last frame, and both ends of the connection are in this process. */
async function isFree(): Promise<void> {
  await answered;
  for (let turn = 0; turn < 10; turn++) await setImmediate();
  expect(connections.size).toBe(1);
}
