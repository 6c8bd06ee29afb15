import type { ClientHttp2Stream } from "node:http2";
import { Readable } from "node:stream";
import { encodeFrame, encodeList, FRAME, type UnpackProgress } from "@vivarium/contract/guest";
import { expect, it } from "vitest";
import { unpackInGuest } from "./unpack.ts";

const TOTALS = { entries: 3, bytes: 10, inodes: 2, skipped: 1, given: ["shell"] };

/** Unpacks with an agent that answers with these bytes. */
async function unpack(chunks: Iterable<Buffer>) {
  const stream = Readable.from(chunks) as unknown as ClientHttp2Stream;
  const agent = { open: async () => stream, answerTo: async () => ({ status: 200, stream }) };
  const seen: UnpackProgress[] = [];
  const { signal } = new AbortController();
  const totals = await unpackInGuest(agent, { signal, onProgress: (progress) => seen.push(progress) });
  return { totals, seen };
}

it("reports progress, however it is cut into chunks, and returns the totals", async () => {
  const items = [
    { layer: 0, bytes: 5 },
    { layer: 1, bytes: 7 },
  ];
  const bytes = encodeList(items, TOTALS);
  expect(await unpack([bytes])).toEqual({ totals: TOTALS, seen: items });
  const { given: _, ...less } = TOTALS;
  expect((await unpack([encodeList([], less)])).totals).toEqual({ ...less, given: [] });
  const single = Array.from(bytes, (byte) => Buffer.of(byte));
  expect(await unpack(single)).toEqual({ totals: TOTALS, seen: items });
});

it("passes a failure on as one of three words and a printable sentence", async () => {
  const fail = (failure: object) => unpack([encodeFrame(FRAME.error, JSON.stringify(failure))]);
  const hostile = { code: "image_invalid", message: 'layer 1: "\u001b[2J\n": wrong' };
  await expect(fail(hostile)).rejects.toMatchObject({
    code: "image_invalid",
    message: 'layer 1: "?[2J?": wrong',
  });
  await expect(fail({ code: "image_too_large", message: "" })).rejects.toMatchObject({
    code: "image_too_large",
  });
  await expect(fail({ code: "ready", message: "" })).rejects.not.toHaveProperty("code");
});

it("believes no answer that breaks off or is outside of its contract", async () => {
  const whole = encodeList([{ layer: 0, bytes: 5 }], TOTALS);
  const wrong = [
    whole.subarray(0, -1),
    encodeList([], { ...TOTALS, bytes: -1 }),
    encodeList([], { ...TOTALS, given: ["a root shell of the host"] }),
    encodeList([], { ...TOTALS, given: Array(1000).fill("shell") }),
    encodeList([{ layer: -1, bytes: 5 }], TOTALS),
    encodeFrame(FRAME.stdout, "x"),
    encodeFrame(FRAME.items, "not json\n"),
    Buffer.from("\u00ff\u00ff\u00ff\u00ff\u00ff"),
    Buffer.alloc(0),
  ];
  for (const bytes of wrong) await expect(unpack([bytes])).rejects.toThrow();
});
