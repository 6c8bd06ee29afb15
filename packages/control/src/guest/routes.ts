/** The shared parts of routes that make one call into a session's machine. */
import type { FastifyReply, FastifyRequest } from "fastify";
import type { z } from "zod";
import { type Scope, scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import { clientGone } from "../http/sse.ts";
import { SessionParams } from "../sessions/params.ts";

export const MACHINE_REFUSALS = errorAnswers(
  "forbidden",
  "not_found",
  "conflict",
  "session_ended",
  "rate_limited",
  "bad_gateway",
);

/** The route schema that these endpoints share: tag, params, the 200 answer and the refusals. */
export function machineSchema<Result extends z.ZodType>(tag: string, result: Result) {
  return { tags: [tag], params: SessionParams, response: { 200: result, ...MACHINE_REFUSALS } };
}

/** The caller's scope, and the call, with a signal that fires when the client has gone. */
export function machineCall<Input extends object>(
  request: FastifyRequest<{ Params: { id: string } }>,
  reply: FastifyReply,
  input: Input,
): [Scope, Input & { sessionId: string; signal: AbortSignal }] {
  const call = { ...input, sessionId: request.params.id, signal: clientGone(reply) };
  return [scopeOf(principalOf(request)), call];
}
