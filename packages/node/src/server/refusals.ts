/** Turns errors into refusals, which are `{code, message}` with the code's status in NODE_ERRORS. */
import { NODE_ERRORS, type NodeErrorCode } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import type { FastifyInstance } from "fastify";
import { NodeError } from "../node-error.ts";

export interface RefusalAnswer {
  status: number;
  body: { code: NodeErrorCode; message: string };
}

export function answerRefusals(server: FastifyInstance): void {
  server.setErrorHandler((error, request, reply) => {
    const { status, body } = refusalOf(error, request.log);
    return reply.code(status).send(body);
  });
}

/** The answer to an error. One that is no refusal is logged, and answered as `internal` without its text. */
export function refusalOf(error: unknown, log: Pick<Log, "error">): RefusalAnswer {
  if (error instanceof NodeError) {
    const { code, message } = error;
    return { status: NODE_ERRORS[code].status, body: { code, message } };
  }
  const status = (error as { statusCode?: number }).statusCode ?? 500;
  if (status < 500) return { status, body: { code: "invalid", message: (error as Error).message } };
  log.error({ err: error }, "call failed");
  return { status: 500, body: { code: "internal", message: "unexpected failure on the node" } };
}
