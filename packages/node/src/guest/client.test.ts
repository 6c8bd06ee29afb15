import { randomBytes } from "node:crypto";
import { once } from "node:events";
import type { ClientHttp2Stream } from "node:http2";
import { encodeFrame, FRAME, FrameDecoder, GUEST_LIMITS } from "@vivarium/contract/guest";
import { MIB } from "@vivarium/kit/sizes";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, describe, expect, it } from "vitest";
import { type ScriptedAgent, startScriptedAgent } from "../../test-support/scripted-agent.ts";
import { cancel } from "./answers.ts";
import { openChannel } from "./channel.ts";
import { AgentClient } from "./client.ts";
import { execInGuest } from "./exec.ts";

let agent: ScriptedAgent;
let client: AgentClient;
afterEach(async () => {
  client?.close();
  await agent.close();
});

const exit = (fields: object = {}) =>
  encodeFrame(
    FRAME.exit,
    JSON.stringify({
      exit_code: 0,
      timed_out: false,
      duration_us: 10,
      stdout_truncated: false,
      stderr_truncated: false,
      ...fields,
    }),
  );

async function connectTo(script: Parameters<typeof startScriptedAgent>[0]): Promise<AgentClient> {
  agent = await startScriptedAgent(script);
  client = new AgentClient(agent.socketPath);
  return client;
}

const spec = { argv: ["true"], env: {}, timeout_ms: 1000 };

async function framesOf(body: Buffer[], limit?: number) {
  const connected = await connectTo({
    handle: (_request, response) => {
      for (const part of body) response.write(part);
      response.end();
    },
  });
  const stream = await execInGuest(connected, { ...spec, output_limit_bytes: limit });
  const decoder = new FrameDecoder();
  const frames = [];
  for await (const chunk of stream) frames.push(...decoder.push(chunk));
  return frames;
}

/** An agent that got a request and does not answer. */
async function handedOver(path: string) {
  const received = Promise.withResolvers<void>();
  const connected = await connectTo({
    handle: (request, response) => {
      if (request.url === path) received.resolve();
      else response.end("{}");
    },
  });
  return { connected, received: received.promise };
}

describe("a machine that is stopped before its agent has answered", () => {
  it("may have started the command, so the error is not retryable", async () => {
    const { connected, received } = await handedOver("/v1/exec");
    const exec = execInGuest(connected, spec);
    await received;
    connected.breakOff();
    await expect(exec).rejects.toMatchObject({ code: "outcome_unknown" });
  });

  it("is retryable for a repeatable request", async () => {
    const { connected, received } = await handedOver("/v1/health");
    const health = connected.health();
    await received;
    connected.breakOff();
    await expect(health).rejects.toMatchObject({ code: "agent_unavailable" });
  });
});

describe("channel", () => {
  it("discards all bytes that the port held before READY", async () => {
    const garbage = Buffer.concat([
      randomBytes(100_000),
      Buffer.from("READY 00000000000000000000000000000000\n"),
    ]);
    const connected = await connectTo({
      garbage,
      handle: (_request, response) =>
        response.end(JSON.stringify({ generation: 1, version: "1", uptime_ms: 1 })),
    });
    expect(await connected.health()).toEqual({ generation: 1, version: "1", uptime_ms: 1 });
  });

  it("gives up on an agent that never answers", async () => {
    agent = await startScriptedAgent({ answersHello: false });
    await expect(openChannel(agent.socketPath, 300)).rejects.toThrow("did not answer within 300 ms");
  });

  it("gives up on a port that floods instead of answering", async () => {
    agent = await startScriptedAgent({ answersHello: false, garbage: Buffer.alloc(9 * MIB, 0x41) });
    await expect(openChannel(agent.socketPath, 20_000)).rejects.toThrow("flooded");
  });

  it("opens a new connection after the old one broke", async () => {
    let first = true;
    const connected = await connectTo({
      handle: (request, response) => {
        if (first) {
          first = false;
          request.stream.session?.destroy();
          return;
        }
        response.end(JSON.stringify({ generation: 1, version: "1", uptime_ms: 1 }));
      },
    });
    await expect(connected.health()).rejects.toMatchObject({ code: "agent_unavailable" });
    expect((await connected.health()).generation).toBe(1);
    expect(agent.connections()).toBe(2);
  });
});

describe("answers of a hostile agent", () => {
  it.each([
    ["not JSON", "<html>"],
    ["of another shape", JSON.stringify({ generation: "one" })],
    ["too large", JSON.stringify({ filler: "x".repeat(300 * 1024) })],
  ])("make its machine unavailable when they are %s", async (_title, body) => {
    const connected = await connectTo({ handle: (_request, response) => response.end(body) });
    await expect(connected.health()).rejects.toMatchObject({ code: "agent_unavailable" });
  });

  it("are refused if a refusal contains control characters", async () => {
    const connected = await connectTo({
      handle: (_request, response) => {
        response.writeHead(400);
        response.end(JSON.stringify({ code: "invalid", message: "line\n\u001b[31mred" }));
      },
    });
    await expect(execInGuest(connected, spec)).rejects.toMatchObject({
      code: "invalid",
      message: "line  [31mred",
    });
  });
});

describe("a full agent", () => {
  const GUESTS = GUEST_LIMITS.concurrentStreams - 16;

  it("keeps streams for the daemon itself, refuses one request more, and takes new ones when others end", async () => {
    const connected = await connectTo({
      handle: (request, response) => {
        if (request.url === "/v1/freeze") response.end("{}");
        else response.write("it goes on");
      },
    });
    const follow = () => connected.request("GET", "/v1/follow", { isRepeatable: true });
    const open = await Promise.all(Array.from({ length: GUESTS }, follow));
    await expect(follow()).rejects.toMatchObject({ code: "agent_unavailable" });
    await connected.freeze();
    const [first] = open;
    const closed = once(first?.stream as ClientHttp2Stream, "close");
    cancel(first?.stream as ClientHttp2Stream);
    await closed;
    expect((await follow()).status).toBe(200);
  });
});

describe("exec frames", () => {
  it("reach the caller in order and end with the exit", async () => {
    const frames = await framesOf([
      encodeFrame(FRAME.stdout, "out"),
      encodeFrame(FRAME.stderr, "err"),
      exit(),
    ]);
    expect(frames.map((frame) => frame.type)).toEqual([FRAME.stdout, FRAME.stderr, FRAME.exit]);
    expect(frames[0]?.payload.toString()).toBe("out");
  });

  it("are cut at the caller's limit even if the agent ignores it", async () => {
    const frames = await framesOf(
      [encodeFrame(FRAME.stdout, "123456"), encodeFrame(FRAME.stdout, "78"), exit()],
      4,
    );
    expect(frames[0]?.payload.toString()).toBe("1234");
    expect(JSON.parse(frames.at(-1)?.payload.toString() ?? "")).toMatchObject({ stdout_truncated: true });
    expect(frames).toHaveLength(2);
  });

  it.each([
    ["no end", [encodeFrame(FRAME.stdout, "x")], "without an exit"],
    ["an unknown type", [Buffer.from([9, 0, 0, 0, 0])], "unknown frame type"],
    ["a length over the cap", [Buffer.from([1, 0xff, 0xff, 0xff, 0xff])], "over the cap"],
    ["the end of a log", [encodeFrame(FRAME.eof, "{}"), exit()], "of type 5"],
    ["half a frame after the end", [exit(), Buffer.from([1, 0])], "half a frame"],
    ["a frame after the end", [exit(), encodeFrame(FRAME.stdout, "x")], "after the end"],
    ["an exit code out of range", [exit({ exit_code: 2 ** 40 })], "exit_code"],
    ["a negative duration", [exit({ duration_us: -5 })], "duration_us"],
    ["an exit that is not JSON", [encodeFrame(FRAME.exit, "{")], "JSON"],
  ])("are refused with %s", async (_title, body, reason) => {
    await expect(framesOf(body)).rejects.toThrow(reason);
  });

  it("are broken off if the agent does not end the command at its time limit", async () => {
    const connected = await connectTo({
      handle: (_request, response) => response.write(encodeFrame(FRAME.stdout, "x")),
    });
    const stream = await execInGuest(connected, { ...spec, timeout_ms: 200 * SLOWNESS }, 800 * SLOWNESS);
    await expect(stream.resume().toArray()).rejects.toThrow("did not end the command at its time limit");
  });

  it("wait for a slow reader", async () => {
    const big = encodeFrame(FRAME.stdout, Buffer.alloc(60 * 1024));
    const connected = await connectTo({
      handle: (_request, response) => {
        for (let i = 0; i < 8; i++) response.write(big);
        response.end(exit());
      },
    });
    const stream = await execInGuest(connected, { ...spec, timeout_ms: 50 * SLOWNESS }, 1_000 * SLOWNESS);
    await new Promise((resolve) => setTimeout(resolve, 2_500 * SLOWNESS));
    const bytes = (await stream.toArray()).reduce((sum, chunk) => sum + chunk.length, 0);
    expect(bytes).toBeGreaterThan(8 * 60 * 1024);
  });
});
