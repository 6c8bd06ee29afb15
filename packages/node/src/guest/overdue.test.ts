/** Agents that are late. */
import { constants, type ServerHttp2Stream } from "node:http2";
import { encodeFrame, encodeList, FRAME } from "@vivarium/contract/guest";
import { sleep } from "@vivarium/kit/clock";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterEach, describe, expect, it } from "vitest";
import { type ScriptedAgent, startScriptedAgent } from "../../test-support/scripted-agent.ts";
import { guestCall, type JsonCall, type ListCall } from "./calls.ts";
import { AgentClient } from "./client.ts";
import { callGuest } from "./json-calls.ts";
import { readContent, readList, readLog } from "./streams.ts";

/** Longer than this process is not run for: what an agent says must arrive before its silence counts. */
const SILENT_MS = 1_000 * SLOWNESS;
const never = new AbortController().signal;
const LIST_CALL = guestCall("GET", "/v1/files/list?path=.") as ReturnType<typeof guestCall> & ListCall;
const OUT = encodeFrame(FRAME.stdout, "x");

let agent: ScriptedAgent;
let client: AgentClient;
afterEach(async () => {
  client.close();
  await agent.close();
});

/** `closed` resolves with the code with which the agent's stream was closed. */
async function connectTo(serve: (stream: ServerHttp2Stream) => void): Promise<{ closed: Promise<number> }> {
  const closed = Promise.withResolvers<number>();
  const handle = ({ stream }: { stream: ServerHttp2Stream }) => {
    stream.on("close", () => closed.resolve(stream.rstCode ?? 0)).resume();
    serve(stream);
  };
  agent = await startScriptedAgent({ handle });
  client = new AgentClient(agent.socketPath);
  return { closed: closed.promise };
}

describe("an answer that is late", () => {
  it.each([
    ["of a read", "GET", "/v1/processes/web", "agent_unavailable"],
    ["of a kill, which may be repeated,", "DELETE", "/v1/processes/web", "agent_unavailable"],
    ["of a change that may have happened", "DELETE", "/v1/files?path=a", "outcome_unknown"],
  ])("%s ends its stream (%s %s is refused with %s)", async (_title, method, path, code) => {
    for (const serve of [() => {}, (stream: ServerHttp2Stream) => stream.respond({ ":status": 200 })]) {
      const { closed } = await connectTo(serve);
      const call = { ...guestCall(method, path), limitMs: SILENT_MS } as ReturnType<typeof guestCall> &
        JsonCall;
      await expect(callGuest(client, call, undefined, never)).rejects.toMatchObject({ code });
      expect(await closed).toBe(constants.NGHTTP2_CANCEL);
      client.close();
      await agent.close();
    }
  });
});

describe("a stream that falls silent", () => {
  it("breaks off if it is a file's content", async () => {
    await connectTo((stream) => {
      stream.respond({ ":status": 200, "content-length": 10 });
      stream.write("123");
    });
    const content = await readContent(client, guestCall("GET", "/v1/files/read?path=a"), never, SILENT_MS);
    await expect(content.stream.toArray()).rejects.toThrow("fell silent");
  });

  it("breaks off if it is a list", async () => {
    await connectTo((stream) => {
      stream.respond({ ":status": 200 });
      stream.write(encodeFrame(FRAME.items, '"a"\n'));
    });
    const list = await readList(client, LIST_CALL, never, {
      silenceMs: SILENT_MS,
      limitMs: 60_000 * SLOWNESS,
    });
    await expect(list.toArray()).rejects.toThrow("fell silent");
  });

  it.each([
    ["breaks off when it is a log", "tail_bytes=10", false],
    ["goes on when it is a log that is followed", "follow=true", true],
  ])("%s", async (_title, query, isContinued) => {
    await connectTo((stream) => {
      stream.respond({ ":status": 200 });
      stream.write(OUT);
      const end = encodeFrame(
        FRAME.eof,
        JSON.stringify({ stdout_truncated: false, stderr_truncated: false }),
      );
      setTimeout(() => stream.destroyed || stream.end(end), 3 * SILENT_MS);
    });
    const log = await readLog(client, guestCall("GET", `/v1/processes/web/logs?${query}`), never, SILENT_MS);
    if (isContinued) expect(Buffer.concat(await log.toArray()).subarray(0, OUT.length)).toEqual(OUT);
    else await expect(log.toArray()).rejects.toThrow("fell silent");
  });
});

describe("a slow list", () => {
  it("breaks off at its limit, although its agent keeps sending", async () => {
    const { closed } = await connectTo((stream) => {
      stream.respond({ ":status": 200 });
      const dribble = setInterval(() => stream.write(encodeFrame(FRAME.items, "")), 20);
      stream.once("close", () => clearInterval(dribble));
    });
    const list = await readList(client, LIST_CALL, never, { silenceMs: 60_000, limitMs: SILENT_MS });
    await expect(list.toArray()).rejects.toThrow("took too long");
    expect(await closed).toBe(constants.NGHTTP2_CANCEL);
  });

  it("is whole for a reader who takes longer than the agent may", async () => {
    const frames = encodeList(Array(1000).fill("x".repeat(200)), { truncated: false });
    await connectTo((stream) => {
      stream.respond({ ":status": 200 });
      stream.end(frames);
    });
    const list = await readList(client, LIST_CALL, never, { silenceMs: 60_000, limitMs: 2 * SILENT_MS });
    await expect.poll(() => list.isWaitingForReader).toBe(true);
    await sleep(3 * SILENT_MS);
    expect(Buffer.concat(await list.toArray())).toEqual(frames);
  });
});
