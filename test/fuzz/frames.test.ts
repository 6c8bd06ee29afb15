/** Streams of a hostile agent: correct frames are parsed, the rest breaks off, and nothing else happens. */
import assert from "node:assert/strict";
import {
  ExecEnd,
  encodeFrame,
  encodeTerminalFrame,
  FRAME,
  FrameDecoder,
  type FrameType,
  GUEST_LIMITS,
  LogEnd,
  TERMINAL_FRAME,
  TerminalFrameDecoder,
} from "@vivarium/contract/guest";
import { encodeOpening, OpeningError, OpeningReader } from "@vivarium/contract/node";
import { expect, test } from "vitest";
import type { AnswerCheck } from "../../packages/node/src/guest/answer-check.ts";
import { ExecCheck } from "../../packages/node/src/guest/exec.ts";
import { ContentCheck, LogCheck } from "../../packages/node/src/guest/streams.ts";
import { TerminalCheck } from "../../packages/node/src/guest/terminals.ts";
import type { Random } from "../chaos/random.ts";
import { forEachInput, TIME_LIMIT_MS } from "./inputs.ts";
import { usedBytes } from "./memory.ts";
import { cut, mutate, someBytes } from "./mutations.ts";
import { nastier, textOf } from "./nasty-json.ts";

const MIB = 1024 * 1024;
const LIMIT = 200;

test("a frame that comes byte by byte keeps nothing of what came with its bytes", async () => {
  const decoder = new FrameDecoder();
  const frame = encodeFrame(FRAME.stdout, Buffer.alloc(4_000));
  const before = await usedBytes();
  for (const at of frame.subarray(0, -1).keys()) {
    const read = Buffer.alloc(64 * 1024);
    frame.copy(read, 0, at, at + 1);
    assert.deepEqual([...decoder.push(read.subarray(0, 1))], []);
  }
  expect((await usedBytes()) - before).toBeLessThan(16 * MIB);
  expect([...decoder.push(frame.subarray(-1))].map(({ whole }) => whole)).toEqual([frame]);
});

const EXEC_END = {
  exit_code: 3,
  timed_out: false,
  duration_us: 9,
  stdout_truncated: false,
  stderr_truncated: true,
};
const LOG_END = { stdout_truncated: false, stderr_truncated: true };

/** The frames that came out, and whether the stream ended or broke off. Neither leaves the test hanging. */
function run(check: AnswerCheck, chunks: Buffer[]): Promise<{ error?: Error; out: Buffer }> {
  return new Promise((resolve) => {
    const out: Buffer[] = [];
    let error: Error | undefined;
    check.on("data", (chunk: Buffer) => out.push(chunk));
    check.once("error", (reason) => {
      error = reason;
    });
    check.once("close", () => resolve({ error, out: Buffer.concat(out) }));
    for (const chunk of chunks) check.write(chunk);
    check.end();
  });
}

function streamOf(
  random: Random,
  ends: Buffer[],
  encode: (type: FrameType, payload: Buffer) => Buffer,
): Buffer {
  const frames = Array.from({ length: random.below(5) }, () =>
    encode(random.pick([FRAME.stdout, FRAME.stderr]), someBytes(random, 80)),
  );
  return Buffer.concat([...frames, random.pick(ends)]);
}

/** Only known frames, no more than was asked for, one end. */
function expectFrames(
  out: Buffer,
  hasEnded: boolean,
  last: FrameType,
  parse: (payload: Buffer) => void,
): void {
  const decoder = new FrameDecoder();
  const frames = [...decoder.push(out)];
  assert(decoder.isBetweenFrames);
  const ends = frames.filter(({ type }) => type !== FRAME.stdout && type !== FRAME.stderr);
  for (const end of ends) {
    assert.equal(end, frames.at(-1));
    assert(end.type === last || end.type === FRAME.error);
    if (end.type === last) parse(end.payload);
    else assert(end.payload.length <= 1024);
  }
  if (hasEnded) assert.equal(ends.length, 1);
  for (const type of [FRAME.stdout, FRAME.stderr]) {
    const bytes = frames
      .filter((frame) => frame.type === type)
      .reduce((sum, { payload }) => sum + payload.length, 0);
    assert(bytes <= LIMIT);
  }
}

async function withFlatMemory(work: () => Promise<void>): Promise<void> {
  const before = await usedBytes();
  await work();
  expect((await usedBytes()) - before).toBeLessThan(32 * MIB);
}

test("frames of a command", { timeout: TIME_LIMIT_MS }, () =>
  withFlatMemory(() =>
    forEachInput("execFrames", async (random) => {
      const ends = [
        encodeFrame(FRAME.exit, textOf(nastier(random, EXEC_END))),
        encodeFrame(FRAME.exit, textOf(EXEC_END)),
        encodeFrame(FRAME.error, someBytes(random, 2000)),
        encodeFrame(FRAME.eof, textOf(LOG_END)),
      ];
      const bytes = mutate(random, streamOf(random, ends, encodeFrame));
      const { error, out } = await run(new ExecCheck(LIMIT), cut(random, bytes));
      expectFrames(out, error === undefined, FRAME.exit, (payload) =>
        ExecEnd.parse(JSON.parse(payload.toString())),
      );
    }),
  ),
);

test("frames of a log", { timeout: TIME_LIMIT_MS }, () =>
  withFlatMemory(() =>
    forEachInput("logFrames", async (random) => {
      const ends = [
        encodeFrame(FRAME.eof, textOf(nastier(random, LOG_END))),
        encodeFrame(FRAME.eof, textOf(LOG_END)),
        encodeFrame(FRAME.exit, textOf(EXEC_END)),
      ];
      const bytes = mutate(random, streamOf(random, ends, encodeFrame));
      const { error, out } = await run(new LogCheck(LIMIT), cut(random, bytes));
      expectFrames(out, error === undefined, FRAME.eof, (payload) =>
        LogEnd.parse(JSON.parse(payload.toString())),
      );
    }),
  ),
);

test("frames of a terminal", { timeout: TIME_LIMIT_MS }, () =>
  withFlatMemory(() =>
    forEachInput("terminalFrames", async (random) => {
      const exit = Buffer.alloc(4);
      exit.writeUInt32BE(random.pick([0, 1, 255, 256, 2 ** 31, 2 ** 32 - 1]));
      const ends = [
        encodeTerminalFrame(TERMINAL_FRAME.exit, exit),
        encodeTerminalFrame(TERMINAL_FRAME.error, someBytes(random, 2000)),
        encodeTerminalFrame(random.below(256), someBytes(random, 8)),
      ];
      const encode = (_type: FrameType, payload: Buffer) => encodeTerminalFrame(TERMINAL_FRAME.data, payload);
      const bytes = mutate(random, streamOf(random, ends, encode));
      const { error, out } = await run(new TerminalCheck(), cut(random, bytes));
      const frames = [...new TerminalFrameDecoder().push(out)];
      const rest = frames.filter(({ type }) => type !== TERMINAL_FRAME.data);
      assert.equal(rest.length, error === undefined ? 1 : Math.min(rest.length, 1));
      if (rest[0]) assert.equal(rest[0], frames.at(-1));
      if (rest[0]?.type === TERMINAL_FRAME.exit) assert(rest[0].payload.readUInt32BE() < 256);
    }),
  ),
);

test("content of a file", { timeout: TIME_LIMIT_MS }, () =>
  withFlatMemory(() =>
    forEachInput("fileContents", async (random) => {
      const promised = random.below(300);
      const bytes = random.below(2) === 0 ? Buffer.alloc(promised, 1) : someBytes(random, 300);
      const { error, out } = await run(new ContentCheck(promised), cut(random, bytes));
      assert(out.length <= promised);
      if (error === undefined) assert(out.equals(bytes));
      assert.equal(error === undefined, bytes.length === promised);
    }),
  ),
);

test("openings of an upgraded connection", { timeout: TIME_LIMIT_MS }, () =>
  forEachInput("openings", (random) => {
    const reader = new OpeningReader();
    const bytes = mutate(random, encodeOpening({ env: {}, text: "x".repeat(random.below(50)) }));
    try {
      for (const chunk of cut(random, bytes)) if (reader.push(chunk)) return;
    } catch (error) {
      assert(error instanceof OpeningError);
    }
  }),
);

test("a frame over the cap is refused before its bytes are waited for", () => {
  const decoders = () => [new FrameDecoder(), new TerminalFrameDecoder()];
  for (const length of [GUEST_LIMITS.framePayloadBytes + 1, 0x7fff_ffff, 0xffff_ffff]) {
    const header = Buffer.from([1, 0, 0, 0, 0]);
    header.writeUInt32BE(length, 1);
    for (const decoder of decoders()) expect(() => [...decoder.push(header)]).toThrow("over the cap");
  }
});
