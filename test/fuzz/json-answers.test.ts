/** JSON of a hostile agent: an answer of the contract, or a NodeError. */
import assert from "node:assert/strict";
import type { ClientHttp2Stream } from "node:http2";
import { Readable } from "node:stream";
import {
  AgentHealth,
  FileList,
  FileWritten,
  FindResult,
  GrepResult,
  GuestProcess,
  isGuestErrorCode,
} from "@vivarium/contract/guest";
import { expect, test } from "vitest";
import type { z } from "zod";
import { readAnswer } from "../../packages/node/src/guest/answers.ts";
import { NodeError } from "../../packages/node/src/node-error.ts";
import type { Random } from "../chaos/random.ts";
import { forEachInput, INPUTS, TIME_LIMIT_MS } from "./inputs.ts";
import { usedBytes } from "./memory.ts";
import { cut, mutate } from "./mutations.ts";
import { nastier, textOf } from "./nasty-json.ts";

const MIB = 1024 * 1024;
const ANSWER_LIMIT = 256 * 1024;
const OWN_CODES = ["cwd_not_found", "cwd_not_a_directory", "invalid", "agent_unavailable"];

const process = {
  name: "web",
  argv: ["sleep", "1"],
  keep_alive: false,
  pid: 7,
  state: "running",
  started_at_ms: 1,
  exit_code: 3,
};
const match = { path: "/workspace/a", line_number: 3, line: "x", before: ["a"], after: [] };
const ANSWERS: readonly (readonly [z.ZodType<unknown>, unknown])[] = [
  [AgentHealth, { generation: 1, version: "1", uptime_ms: 3 }],
  [FileList, { entries: ["a", "b/", "\\xff"], truncated: false }],
  [FindResult, { paths: ["/workspace/a"], truncated: true, duration_us: 5 }],
  [GrepResult, { matches: [match, match], files_searched: 4, truncated: false, duration_us: 1 }],
  [FileWritten, { bytes: 3, duration_us: 1 }],
  [GuestProcess, process],
];

/** The part of a stream that `readAnswer` sees. */
function streamOf(chunks: Buffer[]): ClientHttp2Stream {
  const stream = Readable.from(chunks);
  return Object.assign(stream, { close: () => stream.destroy() }) as unknown as ClientHttp2Stream;
}

async function read(status: number, schema: z.ZodType<unknown>, chunks: Buffer[]): Promise<unknown> {
  try {
    return await readAnswer({ status, stream: streamOf(chunks) }, schema, ANSWER_LIMIT);
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    return error;
  }
}

function bytesOf(random: Random, value: unknown): Buffer {
  const bytes = Buffer.from(textOf(nastier(random, value)));
  return random.below(4) === 0 ? mutate(random, bytes) : bytes;
}

test("answers", { timeout: TIME_LIMIT_MS }, async () => {
  const before = await usedBytes();
  await forEachInput("jsonAnswers", async (random) => {
    const [schema, answer] = random.pick(ANSWERS);
    const result = await read(200, schema, cut(random, bytesOf(random, answer)));
    if (result instanceof NodeError) return assert.equal(result.code, "agent_unavailable");
    assert(schema.safeParse(result).success);
    assert(!Object.hasOwn(result as object, "__proto__"));
  });
  expect((await usedBytes()) - before).toBeLessThan(32 * MIB);
});

test("refusals", { timeout: TIME_LIMIT_MS }, async () => {
  const codes = ["no_such_file", "busy", "cwd_not_found", "machine_gone", "__proto__", "constructor", "x"];
  await forEachInput("refusals", async (random) => {
    const body = bytesOf(random, { code: random.pick(codes), message: "words\u001b[0m of the agent" });
    const refusal = await read(random.pick([400, 404, 500, 204, 0]), FileList, cut(random, body));
    assert(refusal instanceof NodeError);
    const { code, message } = refusal;
    assert(isGuestErrorCode(code) || OWN_CODES.includes(code));
    assert.match(message, /^[\x20-\x7e]{0,1024}$/);
  });
});

test.each([
  ["of a depth of 100,000", "[".repeat(100_000)],
  ["of a depth of 100,000, closed", `${"[".repeat(100_000)}${"]".repeat(100_000)}`],
  ["with more fields than fit", `{${Array.from({ length: 100_000 }, (_, i) => `"k${i}":1`).join()}}`],
  ["with a number that is none", '{"entries":[NaN],"truncated":false}'],
  ["that is not UTF-8", Buffer.from([0x7b, 0x22, 0xff, 0xfe, 0x22, 0x7d])],
  ["that changes what an object is", '{"__proto__":{"entries":[],"truncated":false}}'],
])("an answer %s makes the agent unavailable", async (_title, body) => {
  expect(await read(200, FileList, [Buffer.from(body)])).toMatchObject({ code: "agent_unavailable" });
  expect(({} as { entries?: unknown }).entries).toBeUndefined();
});

test("all targets together are given a hundred thousand inputs and more", () => {
  const total = Object.values(INPUTS).reduce((sum, inputs) => sum + inputs, 0);
  expect(total).toBeGreaterThanOrEqual(100_000);
});
