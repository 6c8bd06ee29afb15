import { expect, test } from "vitest";
import { readEvents } from "./sse.ts";

async function parse(...chunks: (string | Uint8Array)[]) {
  async function* body() {
    for (const chunk of chunks) yield typeof chunk === "string" ? new TextEncoder().encode(chunk) : chunk;
  }
  return Array.fromAsync(readEvents(body()));
}

test("reads events with their type and data", async () => {
  expect(await parse("event: stdout\ndata: aGk=\n\nevent: exit\ndata: {}\n\n")).toEqual([
    { event: "stdout", data: "aGk=" },
    { event: "exit", data: "{}" },
  ]);
});

test("does not care where chunks are cut, not even inside a character", async () => {
  const bytes = new TextEncoder().encode("event: error\ndata: caf\u00e9 \u{1f600}\n\n");
  const single = [...bytes].map((byte) => Uint8Array.of(byte));
  expect(await parse(...single)).toEqual([{ event: "error", data: "caf\u00e9 \u{1f600}" }]);
});

test("keeps an event whose data is empty", async () => {
  expect(await parse("event: stdout\ndata: \n\n")).toEqual([{ event: "stdout", data: "" }]);
});

test("passes over heartbeats, unknown fields and blocks without data", async () => {
  expect(await parse(": hb\n\nid: 7\nretry: 1\n\nevent: x\n\ndata: 1\n\n")).toEqual([
    { event: "message", data: "1" },
  ]);
});

test("accepts CRLF and joins several data lines", async () => {
  expect(await parse("data: a\r\ndata: b\r", "\n\r\n")).toEqual([{ event: "message", data: "a\nb" }]);
});

test("drops an event that the stream leaves unfinished", async () => {
  expect(await parse("data: whole\n\nevent: stdout\ndata: hal")).toEqual([
    { event: "message", data: "whole" },
  ]);
});
