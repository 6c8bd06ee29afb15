/** Streamed answers of an agent: content of files, logs of processes, lists. */
import { LIMITS } from "@vivarium/contract/api";
import { NodeError } from "../node-error.ts";
import type { AnswerCheck } from "./answer-check.ts";
import { assertAccepted, cancel } from "./answers.ts";
import type { GuestCall, ListCall } from "./calls.ts";
import type { AgentClient } from "./client.ts";
import { ContentCheck } from "./content.ts";
import { ListCheck } from "./lists.ts";
import { LogCheck } from "./logs.ts";

/** How long an agent may send nothing although its reader waits. */
const CONTENT_SILENCE_MS = 120_000;
const LOG_SILENCE_MS = 60_000;
/** `limitMs`: the headers come when all items are found. Sending 32 MiB takes seconds, also for an emulated guest. */
const LIST_TIMES = { silenceMs: 60_000, limitMs: 120_000 };

export interface Content {
  bytes: number;
  stream: AnswerCheck;
}

export async function readContent(
  agent: AgentClient,
  { path, query }: GuestCall,
  signal: AbortSignal,
  silenceMs = CONTENT_SILENCE_MS,
): Promise<Content> {
  const source = await agent.open({ method: "GET", path, isWhole: true, signal });
  const promised = Promise.withResolvers<string | undefined>();
  source.once("response", (headers) => promised.resolve(headers["content-length"]));
  await assertAccepted(await agent.answerTo(source, { isRepeatable: true }));
  const bytes = Number((await promised.promise) ?? Number.NaN);
  const most = query.has("max_bytes") ? Number(query.get("max_bytes")) : Number.MAX_SAFE_INTEGER;
  if (!Number.isSafeInteger(bytes) || bytes > most) {
    cancel(source);
    throw new NodeError("agent_unavailable", "the agent answered with content of another size than it may");
  }
  const stream = new ContentCheck(bytes).follow(source);
  breakOffWhenSilent(stream, silenceMs);
  return { bytes, stream };
}

/** A followed log may be silent for as long as its process runs. */
export async function readLog(
  agent: AgentClient,
  { path, query }: GuestCall,
  signal: AbortSignal,
  silenceMs = LOG_SILENCE_MS,
): Promise<AnswerCheck> {
  const source = await agent.open({ method: "GET", path, isWhole: true, signal });
  await assertAccepted(await agent.answerTo(source, { isRepeatable: true }));
  if (query.get("follow") === "true") return new LogCheck(Number.POSITIVE_INFINITY).follow(source);
  const asked = query.has("tail_bytes") ? Number(query.get("tail_bytes")) : LIMITS.processLogBytes;
  const stream = new LogCheck(Math.min(asked, LIMITS.processLogBytes)).follow(source);
  breakOffWhenSilent(stream, silenceMs);
  return stream;
}

export async function readList(
  agent: AgentClient,
  { path, shape }: GuestCall & ListCall,
  signal: AbortSignal,
  times = LIST_TIMES,
): Promise<AnswerCheck> {
  const source = await agent.open({ method: "GET", path, isWhole: true, signal });
  await assertAccepted(await agent.answerTo(source, { isRepeatable: true }));
  const stream = new ListCheck(shape).follow(source);
  breakOffWhenSilent(stream, times.silenceMs);
  stream.breakOffAfter(times.limitMs, "the agent took too long over its answer");
  return stream;
}

function breakOffWhenSilent(stream: AnswerCheck, silenceMs: number): void {
  const isOverdue = () => Date.now() - stream.heardAt >= silenceMs;
  stream.breakOffWhen(isOverdue, silenceMs, "the agent fell silent in the middle of its answer");
}
