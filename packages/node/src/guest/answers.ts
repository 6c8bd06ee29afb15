/** Reads an agent's answers. The bytes are hostile, so all answers have a size limit. Refusals become node errors. */
import { type ClientHttp2Stream, constants } from "node:http2";
import { AgentError, GUEST_LIMITS, isGuestErrorCode } from "@vivarium/contract/guest";
import type { NodeErrorCode } from "@vivarium/contract/node";
import { readAtMost } from "@vivarium/kit/read-at-most";
import { KIB } from "@vivarium/kit/sizes";
import type { z } from "zod";
import { NodeError } from "../node-error.ts";

/** Most bytes of a refusal: enough for a code and a sentence. */
const REFUSAL_BYTES = 16 * KIB;
const CWD_CODES: ReadonlySet<string> = new Set(["cwd_not_found", "cwd_not_a_directory"]);

export interface AgentAnswer {
  status: number;
  stream: ClientHttp2Stream;
}

/** The error for a request without an answer: not retryable if repeating it could do its work twice. */
export function unanswered(isRepeatable: boolean, message: string): NodeError {
  return new NodeError(isRepeatable ? "agent_unavailable" : "outcome_unknown", message);
}

/** Resolves with the status of the answer. */
export function statusOf(stream: ClientHttp2Stream, isRepeatable: boolean): Promise<number> {
  return new Promise((resolve, reject) => {
    stream.once("response", (headers) => resolve(Number(headers[constants.HTTP2_HEADER_STATUS])));
    stream.once("close", () => reject(unanswered(isRepeatable, "the agent broke the connection")));
  });
}

/** Cancels the agent's request. */
export function cancel(stream: ClientHttp2Stream): void {
  stream.close(constants.NGHTTP2_CANCEL);
}

/** The body of an answer of status 200, checked against the schema. A refusal is thrown. */
export async function readAnswer<T>(
  answer: AgentAnswer,
  schema: z.ZodType<T>,
  limitBytes: number = GUEST_LIMITS.jsonBodyBytes,
): Promise<T> {
  await assertAccepted(answer);
  const parsed = schema.safeParse(await readJson(answer.stream, limitBytes));
  if (!parsed.success) throw new NodeError("agent_unavailable", "the agent answered outside its contract");
  return parsed.data;
}

/** Throws the agent's refusal if the answer is one. */
export async function assertAccepted({ status, stream }: AgentAnswer): Promise<void> {
  if (status !== 200) throw agentRefusal(await readJson(stream, REFUSAL_BYTES));
}

async function readJson(stream: ClientHttp2Stream, limitBytes: number) {
  const body = await readAtMost(stream, limitBytes).catch((cause: unknown) => {
    cancel(stream);
    throw new NodeError("agent_unavailable", "the agent broke off its answer", { cause });
  });
  if (!body) {
    cancel(stream);
    throw new NodeError("agent_unavailable", "the agent answered with too much");
  }
  try {
    return JSON.parse(body.toString("utf8")) as unknown;
  } catch (cause) {
    throw new NodeError("agent_unavailable", "the agent answered with something that is not JSON", { cause });
  }
}

/** An agent's refusal as an error of the node. Guest text goes to the tenant and is never part of a decision. */
function agentRefusal(body: unknown): NodeError {
  const parsed = AgentError.safeParse(body);
  if (!parsed.success) return new NodeError("agent_unavailable", "the agent refused without a reason");
  const { code, message } = parsed.data;
  return new NodeError(isPassedOn(code) ? code : "invalid", message.replace(/[^\x20-\x7e]/g, " "));
}

/** Whether the agent's code is passed on. `internal` is a fault inside the guest, such as an I/O error or no memory. */
function isPassedOn(code: string): code is NodeErrorCode {
  return isGuestErrorCode(code) || CWD_CODES.has(code) || code === "internal";
}

/** Waits for the work up to a time limit. `onLate` gives up the work and returns the error to throw. */
export async function withLimit<T>(work: Promise<T>, limitMs: number, onLate: () => Error): Promise<T> {
  const expired = Promise.withResolvers<never>();
  const timer = setTimeout(() => expired.reject(onLate()), limitMs);
  try {
    return await Promise.race([work, expired.promise]);
  } finally {
    clearTimeout(timer);
  }
}
