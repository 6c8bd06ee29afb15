import { readFileSync } from "node:fs";
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { GUEST_LIMITS } from "./channel.ts";
import { encodeFrame, FRAME, type Frame, FrameDecoder, type FrameType } from "./frames.ts";
import { FrameError } from "./framing.ts";
import { ExecEnd } from "./messages.ts";

interface Golden {
  frames: { name: string; type: keyof typeof FRAME; payload_hex: string; json?: unknown; hex: string }[];
  refused: { name: string; hex: string }[];
  incomplete: { name: string; hex: string }[];
}

const golden = JSON.parse(
  readFileSync(new URL("../../fixtures/frames.json", import.meta.url), "utf8"),
) as Golden;
const bytes = (hex: string) => Buffer.from(hex, "hex");

describe("golden frames, shared with the agent", () => {
  test.each(golden.frames)("$name", ({ type, payload_hex, json, hex }) => {
    expect(encodeFrame(FRAME[type], bytes(payload_hex)).toString("hex")).toBe(hex);
    const decoder = new FrameDecoder();
    const [frame, ...more] = decoder.push(bytes(hex));
    expect(more).toEqual([]);
    expect(frame?.type).toBe(FRAME[type]);
    expect(frame?.payload.toString("hex")).toBe(payload_hex);
    expect(decoder.isBetweenFrames).toBe(true);
    if (json !== undefined) expect(JSON.parse(frame?.payload.toString() ?? "")).toEqual(json);
    if (type === "exit") expect(ExecEnd.parse(json)).toEqual(json);
  });

  test.each(golden.refused)("refused: $name", ({ hex }) => {
    expect(() => [...new FrameDecoder().push(bytes(hex))]).toThrow(FrameError);
  });

  test.each(golden.incomplete)("not yet a frame: $name", ({ hex }) => {
    const decoder = new FrameDecoder();
    expect([...decoder.push(bytes(hex))]).toEqual([]);
    expect(decoder.isBetweenFrames).toBe(false);
  });
});

describe("FrameDecoder", () => {
  test("accepts a frame of the largest size", () => {
    const payload = Buffer.alloc(GUEST_LIMITS.framePayloadBytes, 7);
    const [frame] = new FrameDecoder().push(encodeFrame(FRAME.stdout, payload));
    expect(frame?.payload.equals(payload)).toBe(true);
  });

  test("finds the same frames however the bytes are cut", () => {
    const someFrame = fc.record({
      type: fc.constantFrom<FrameType>(...Object.values(FRAME)),
      payload: fc.uint8Array({ maxLength: 300 }),
    });
    const property = fc.property(
      fc.array(someFrame, { maxLength: 10 }),
      fc.array(fc.nat(60), { minLength: 1, maxLength: 30 }),
      (frames, cuts) => {
        const wire = Buffer.concat(frames.map(({ type, payload }) => encodeFrame(type, payload)));
        const decoder = new FrameDecoder();
        const found = [];
        for (let at = 0, i = 0; at < wire.length; i++) {
          const end = at + 1 + (cuts[i % cuts.length] ?? 0);
          found.push(...decoder.push(wire.subarray(at, end)));
          at = end;
        }
        expect(found.map((f) => [f.type, [...f.payload]])).toEqual(
          frames.map((f) => [f.type, [...f.payload]]),
        );
        expect(decoder.isBetweenFrames).toBe(true);
      },
    );
    fc.assert(property, { numRuns: 300 });
  });

  test("returns each frame as it was sent, without a copy if it is whole in one chunk", () => {
    const frames = ["one", "two", "six"].map((text) => encodeFrame(FRAME.stdout, text.repeat(5000)));
    const wire = Buffer.concat(frames);
    const decoder = new FrameDecoder();
    const cut = 15_005 + 10_000;
    const [first, ...none] = decoder.push(wire.subarray(0, cut));
    const [second, third] = decoder.push(wire.subarray(cut));
    expect(none).toEqual([]);
    expect([first, second, third].map((frame) => frame?.whole)).toEqual(frames);
    expect([first, second, third].map((frame) => frame?.whole.buffer === wire.buffer)).toEqual([
      true,
      false,
      true,
    ]);
  });

  test("returns the frames before a refused one, also if they arrive together", () => {
    const good = encodeFrame(FRAME.stdout, "x");
    const decoder = new FrameDecoder();
    const found: Frame[] = [];
    expect(() => {
      for (const frame of decoder.push(Buffer.concat([good, good, bytes("7f00000000"), good])))
        found.push(frame);
    }).toThrow(FrameError);
    expect(found.map(({ payload }) => payload.toString())).toEqual(["x", "x"]);
  });

  test("either decodes or refuses, whatever the guest sends", () => {
    const property = fc.property(fc.array(fc.uint8Array({ maxLength: 200 }), { maxLength: 20 }), (chunks) => {
      const decoder = new FrameDecoder();
      try {
        for (const chunk of chunks) for (const _ of decoder.push(Buffer.from(chunk)));
      } catch (error) {
        expect(error).toBeInstanceOf(FrameError);
      }
    });
    fc.assert(property, { numRuns: 1000 });
  });
});
