/** A hostile agent on a real socket: every call of the node ends in an answer or in an error of its own, and soon. */
import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { encodeFrame, encodeList, FileWritten, FRAME, readyLine } from "@vivarium/contract/guest";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { afterAll, beforeAll, expect, test } from "vitest";
import { guestCall } from "../../packages/node/src/guest/calls.ts";
import { openChannel } from "../../packages/node/src/guest/channel.ts";
import { AgentClient } from "../../packages/node/src/guest/client.ts";
import { execInGuest } from "../../packages/node/src/guest/exec.ts";
import { callGuest } from "../../packages/node/src/guest/json-calls.ts";
import { readContent, readList, readLog } from "../../packages/node/src/guest/streams.ts";
import { uploadToGuest } from "../../packages/node/src/guest/uploads.ts";
import { NodeError } from "../../packages/node/src/node-error.ts";
import type { Random } from "../chaos/random.ts";
import { FLAG, h2Frame, startHostileAgent, TYPE } from "./hostile-agent.ts";
import { forEachInput, inThisRun, TIME_LIMIT_MS } from "./inputs.ts";
import { usedBytes } from "./memory.ts";
import { mutate, someBytes } from "./mutations.ts";

const MIB = 1024 * 1024;
const NOTHING = Buffer.alloc(0);
/** `:status: 200` and `:status: 400` of the table that every HTTP/2 peer knows. */
const STATUS_200 = Buffer.from([0x88]);
const STATUS_400 = Buffer.from([0x8c]);
const CONTENT_LENGTH_3 = Buffer.from([0x88, 0x0f, 0x0d, 0x01, 0x33]);

const BODIES = [
  Buffer.from(JSON.stringify({ code: "no_such_file", message: "gone" })),
  encodeFrame(FRAME.stdout, "abc"),
];

const EXIT = {
  exit_code: 0,
  timed_out: false,
  duration_us: 1,
  stdout_truncated: false,
  stderr_truncated: false,
};
const PROCESS = { name: "a", argv: ["true"], keep_alive: false, state: "running", started_at_ms: 1 };
const WRITTEN = { bytes: 3, duration_us: 1 };
/** Correct answers to each of the calls. */
const FITTING = [
  encodeFrame(FRAME.exit, JSON.stringify(EXIT)),
  Buffer.from(JSON.stringify(PROCESS)),
  Buffer.from("abc"),
  encodeFrame(FRAME.eof, JSON.stringify({ stdout_truncated: false, stderr_truncated: false })),
  encodeList(["a"], { truncated: false }),
  Buffer.from(JSON.stringify(WRITTEN)),
] as const;
const READ = 2;

let agent: Awaited<ReturnType<typeof startHostileAgent>>;
beforeAll(async () => {
  agent = await startHostileAgent({ garbage: () => NOTHING, answer: () => NOTHING });
});
afterAll(() => agent.close());

/** A few frames that nearly answer the request, with its stream id, with other ids, or with none. */
function answerOf(random: Random, streamId: number, kind: number): Buffer {
  const body = FITTING[kind] ?? NOTHING;
  const head = kind === READ ? CONTENT_LENGTH_3 : STATUS_200;
  const fitting = Buffer.concat([
    h2Frame(TYPE.headers, FLAG.endHeaders, streamId, head),
    h2Frame(TYPE.data, FLAG.end, streamId, body),
  ]);
  return random.below(2) === 0 ? strangeAnswer(random, streamId) : mutate(random, fitting);
}

function strangeAnswer(random: Random, streamId: number): Buffer {
  const id = () =>
    random.below(4) === 0 ? random.pick([0, 1, 2, 3, 99, streamId + 2, 0x7fff_ffff]) : streamId;
  const head = h2Frame(
    TYPE.headers,
    FLAG.endHeaders,
    id(),
    random.pick([STATUS_200, STATUS_400, CONTENT_LENGTH_3]),
  );
  const body = Array.from({ length: random.below(4) }, () => {
    const flags = random.pick([0, 0, FLAG.end, random.below(256)]);
    switch (random.below(8)) {
      case 0:
        return h2Frame(TYPE.reset, 0, id(), Buffer.from([0, 0, 0, random.below(16)]));
      case 1:
        return h2Frame(TYPE.push, FLAG.endHeaders, id(), Buffer.from([0, 0, 0, 2, 0x88]));
      case 2:
        return h2Frame(random.below(256), flags, id(), someBytes(random, 30));
      case 3:
        return h2Frame(
          TYPE.headers,
          FLAG.endHeaders | FLAG.end,
          id(),
          random.pick([STATUS_200, someBytes(random, 20)]),
        );
      default:
        return h2Frame(TYPE.data, flags, id(), random.pick([...BODIES, ...FITTING]));
    }
  });
  const bytes = Buffer.concat([head, ...body, h2Frame(TYPE.data, FLAG.end, streamId, NOTHING)]);
  return random.below(2) === 0 ? bytes : mutate(random, bytes);
}

const BROKEN_OFF = /^the agent |JSON|Invalid|over the cap|unknown frame|the list/;
const never = new AbortController().signal;

async function callOf(kind: number, client: AgentClient): Promise<unknown> {
  switch (kind) {
    case 0:
      return await (await execInGuest(client, { argv: ["true"], env: {}, timeout_ms: 1000 })).toArray();
    case 1: {
      const call = guestCall("GET", "/v1/processes/a");
      if (call.kind !== "json") throw new Error("not a call with a JSON answer");
      return await callGuest(client, call, undefined, never);
    }
    case READ:
      return await (
        await readContent(client, guestCall("GET", "/v1/files/read?path=a"), never)
      ).stream.toArray();
    case 3:
      return await (
        await readLog(client, guestCall("GET", "/v1/processes/a/logs?follow=true"), never)
      ).toArray();
    case 4: {
      const call = guestCall("GET", "/v1/files/list?path=.");
      if (call.kind !== "list") throw new Error("not a call with a list");
      return await (await readList(client, call, never)).toArray();
    }
    default: {
      const upload = { method: "PUT", path: "/v1/files/write?path=a", answer: FileWritten };
      return await uploadToGuest(client, { ...upload, source: Readable.from([Buffer.from("abc")]) });
    }
  }
}

test("answers in HTTP/2 that nearly fit", { timeout: TIME_LIMIT_MS }, async () => {
  const before = await usedBytes();
  const outcomes = { whole: 0, refused: 0, brokenOff: 0 };
  await forEachInput("connections", async (random) => {
    const kind = random.below(FITTING.length);
    agent.hostility.answer = (streamId) => answerOf(random, streamId, kind);
    const client = new AgentClient(agent.socketPath);
    try {
      await callOf(kind, client);
      outcomes.whole += 1;
    } catch (error) {
      // A stream that had begun breaks off with a plain error; a stream that had not is refused with a code.
      outcomes[error instanceof NodeError ? "refused" : "brokenOff"] += 1;
      if (!(error instanceof NodeError)) assert.match((error as Error).message, BROKEN_OFF);
    } finally {
      client.close();
    }
  });
  for (const count of Object.values(outcomes)) expect(count).toBeGreaterThan(inThisRun(50));
  expect((await usedBytes()) - before).toBeLessThan(32 * MIB);
});

test("ports that hold anything before they are ready", { timeout: TIME_LIMIT_MS }, async () => {
  const before = await usedBytes();
  await forEachInput("resyncs", async (random) => {
    const pieces = Array.from({ length: random.below(5) }, () =>
      random.pick([
        someBytes(random, 300),
        Buffer.from(readyLine("0".repeat(32))),
        Buffer.from("READY "),
        Buffer.alloc(100_000),
      ]),
    );
    agent.hostility.garbage = () => Buffer.concat(pieces);
    agent.hostility.answersHello = random.below(3) > 0;
    const opened = openChannel(agent.socketPath, 5_000 * SLOWNESS);
    if (agent.hostility.answersHello) (await opened).destroy();
    else await expect(opened).rejects.toThrow("the agent port closed");
  });
  agent.hostility.garbage = () => NOTHING;
  agent.hostility.answersHello = true;
  expect((await usedBytes()) - before).toBeLessThan(32 * MIB);
});

test.each([
  [
    "answers for streams that were never opened",
    (i: number) => h2Frame(TYPE.headers, FLAG.endHeaders, 2 * i + 1001, STATUS_200),
  ],
  [
    "resets of streams that were never opened",
    (i: number) => h2Frame(TYPE.reset, 0, 2 * i + 1001, Buffer.alloc(4)),
  ],
  ["data beyond the flow-control window", () => h2Frame(TYPE.data, 0, 1, Buffer.alloc(16_384))],
  ["settings", () => h2Frame(TYPE.settings, 0, 0, Buffer.from([0, 4, 0, 0, 0xff, 0xff]))],
  ["pings", () => h2Frame(TYPE.ping, 0, 0, Buffer.alloc(8))],
  ["empty data", () => h2Frame(TYPE.data, 0, 1, NOTHING)],
])(
  "a flood of %s ends its own call and harms no other machine",
  { timeout: 120_000 * SLOWNESS },
  async (_title, frame) => {
    const flood = Buffer.concat(Array.from({ length: 4_000 }, (_, i) => frame(i)));
    const head = (id: number) => h2Frame(TYPE.headers, FLAG.endHeaders, id, STATUS_200);
    agent.hostility.answer = (id) => Buffer.concat([head(id), flood]);
    const healthy = await startHostileAgent({
      garbage: () => NOTHING,
      staysOpen: true,
      answer: (id) => Buffer.concat([head(id), h2Frame(TYPE.data, FLAG.end, id, Buffer.from(HEALTH))]),
    });
    const before = await usedBytes();
    const [bad, good] = [new AgentClient(agent.socketPath), new AgentClient(healthy.socketPath)];
    try {
      const call = callOf(1, bad);
      call.catch(() => {});
      expect(await good.health()).toEqual(JSON.parse(HEALTH));
      await expect(call).rejects.toMatchObject({ code: "agent_unavailable" });
      expect(await good.health()).toEqual(JSON.parse(HEALTH));
      expect((await usedBytes()) - before).toBeLessThan(96 * MIB);
    } finally {
      bad.close();
      good.close();
      await healthy.close();
    }
  },
);

const HEALTH = JSON.stringify({ generation: 1, version: "1", uptime_ms: 1 });
