/** Checks streamed answers of an agent on their way to the caller: content of files, logs of processes, lists. */
import type { ClientHttp2Stream, IncomingHttpHeaders } from "node:http2";
import { LIMITS } from "@vivarium/contract/api";
import {
  encodeFrame,
  FRAME,
  type FrameAsSent,
  ListReader,
  type ListShape,
  LogEnd,
} from "@vivarium/contract/guest";
import { NodeError } from "../node-error.ts";
import { AnswerCheck } from "./answer-check.ts";
import { assertAccepted, cancel } from "./answers.ts";
import type { GuestCall, ListCall } from "./calls.ts";
import type { AgentClient } from "./client.ts";
import { FrameCheck } from "./frame-check.ts";

/** How long an agent may send nothing of a file although its reader waits. */
const CONTENT_SILENCE_MS = 120_000;
const LOG_SILENCE_MS = 60_000;
/** Limits after a list's headers, which come when all items are found: silence, and the total for at most 32 MiB. */
const LIST_TIMES = { silenceMs: 60_000, limitMs: 120_000 };

export interface Content {
  bytes: number;
  stream: AnswerCheck;
}

export async function readContent(
  agent: AgentClient,
  call: GuestCall,
  signal: AbortSignal,
  silenceMs = CONTENT_SILENCE_MS,
): Promise<Content> {
  const { source, headers } = await ask(agent, call, signal);
  const bytes = Number(headers["content-length"] ?? Number.NaN);
  const { query } = call;
  const most = query.has("max_bytes") ? Number(query.get("max_bytes")) : Number.MAX_SAFE_INTEGER;
  if (!Number.isSafeInteger(bytes) || bytes > most) {
    cancel(source);
    throw new NodeError("agent_unavailable", "the agent answered with content of another size than it may");
  }
  const stream = new ContentCheck(bytes).follow(source);
  breakOffWhenSilent(stream, silenceMs);
  return { bytes, stream };
}

/** Reads a log. A followed one may be silent for as long as its process runs. */
export async function readLog(
  agent: AgentClient,
  call: GuestCall,
  signal: AbortSignal,
  silenceMs = LOG_SILENCE_MS,
): Promise<AnswerCheck> {
  const { source } = await ask(agent, call, signal);
  const { query } = call;
  if (query.get("follow") === "true") return new LogCheck(Number.POSITIVE_INFINITY).follow(source);
  const asked = query.has("tail_bytes") ? Number(query.get("tail_bytes")) : LIMITS.processLogBytes;
  const stream = new LogCheck(Math.min(asked, LIMITS.processLogBytes)).follow(source);
  breakOffWhenSilent(stream, silenceMs);
  return stream;
}

export async function readList(
  agent: AgentClient,
  call: GuestCall & ListCall,
  signal: AbortSignal,
  times = LIST_TIMES,
): Promise<AnswerCheck> {
  const { source } = await ask(agent, call, signal);
  const stream = new ListCheck(call.shape).follow(source);
  breakOffWhenSilent(stream, times.silenceMs);
  stream.breakOffAfter(times.limitMs, "the agent took too long over its answer");
  return stream;
}

/** Sends a GET and resolves once the agent has accepted it. */
async function ask(
  agent: AgentClient,
  { path }: GuestCall,
  signal: AbortSignal,
): Promise<{ source: ClientHttp2Stream; headers: IncomingHttpHeaders }> {
  const source = await agent.open({ method: "GET", path, isWhole: true, signal });
  const answered = Promise.withResolvers<IncomingHttpHeaders>();
  source.once("response", answered.resolve);
  await assertAccepted(await agent.answerTo(source, { isRepeatable: true }));
  return { source, headers: await answered.promise };
}

function breakOffWhenSilent(stream: AnswerCheck, silenceMs: number): void {
  const isOverdue = () => Date.now() - stream.heardAt >= silenceMs;
  stream.breakOffWhen(isOverdue, silenceMs, "the agent fell silent in the middle of its answer");
}

/** Passes content on that is exactly as long as the agent promised, and breaks off any other. */
export class ContentCheck extends AnswerCheck {
  #bytesLeft: number;

  constructor(promisedBytes: number) {
    super();
    this.#bytesLeft = promisedBytes;
  }

  protected override accept(chunk: Buffer): void {
    this.#bytesLeft -= chunk.length;
    if (this.#bytesLeft < 0) throw new Error("the agent sent more of a file than it promised");
    this.push(chunk);
  }

  protected override acceptEnd(): void {
    if (this.#bytesLeft > 0) throw new Error("the agent sent less of a file than it promised");
  }
}

export class LogCheck extends FrameCheck {
  readonly #bytesLeft: Map<number, number>;

  /** `limitBytes`: most bytes of stdout, and of stderr. */
  constructor(limitBytes: number) {
    super("eof");
    this.#bytesLeft = new Map([
      [FRAME.stdout, limitBytes],
      [FRAME.stderr, limitBytes],
    ]);
  }

  protected override acceptFrame({ type, payload, whole }: FrameAsSent): boolean {
    if (type === FRAME.eof) {
      const end = LogEnd.parse(JSON.parse(payload.toString("utf8")));
      this.push(encodeFrame(type, JSON.stringify(end)));
      return true;
    }
    const left = this.#bytesLeft.get(type);
    if (left === undefined) throw new Error(`the agent sent a frame of type ${type} in a log`);
    if (payload.length > left) throw new Error("the agent sent more of a log than it was asked for");
    this.#bytesLeft.set(type, left - payload.length);
    this.push(whole);
    return false;
  }
}

/** Checks each item of a list against the contract, and stores none. */
class ListCheck extends FrameCheck {
  readonly #reader: ListReader<unknown, unknown>;

  constructor(shape: ListShape<unknown, unknown>) {
    super("eof");
    this.#reader = new ListReader(shape);
  }

  protected override acceptFrame(frame: FrameAsSent): boolean {
    for (const _ of this.#reader.read(frame));
    const { end } = this.#reader;
    this.push(end === undefined ? frame.whole : encodeFrame(FRAME.eof, JSON.stringify(end)));
    return end !== undefined;
  }
}
