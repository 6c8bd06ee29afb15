/** Endpoints that make one call into a session's machine. */
import type { FastifyReply, FastifyRequest } from "fastify";
import { type Scope, scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import { clientGone } from "../http/sse.ts";

export const MACHINE_REFUSALS = errorAnswers(
  "forbidden",
  "not_found",
  "conflict",
  "session_ended",
  "rate_limited",
  "bad_gateway",
);

/** The caller's scope, and the call, with a signal that fires when the client has gone. */
export function machineCall<Input extends object>(
  request: FastifyRequest<{ Params: { id: string } }>,
  reply: FastifyReply,
  input: Input,
): [Scope, Input & { sessionId: string; signal: AbortSignal }] {
  const call = { ...input, sessionId: request.params.id, signal: clientGone(reply) };
  return [scopeOf(principalOf(request)), call];
}
