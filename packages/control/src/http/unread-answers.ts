/**
 * Cuts connections whose clients do not read large answers, before these fill the memory that all share.
 *
 * A few large answers may stay unread for any time. Once those of one organisation exceed a limit together, its
 * connections with answers that have been unread for a while are cut. Measured with node:http alone: 16 connections
 * that do not read one answer of 25 MiB each cost 405 MiB.
 */
import type { FastifyInstance } from "fastify";
import { onceClosed } from "./once-closed.ts";

/** Most bytes of unread answers of one organisation together: five of the largest lists. */
const ORG_BYTES = 128 * 1024 * 1024;
/** Answers up to this size do not count, because a socket buffers as much anyway. */
const SMALL_BYTES = 64 * 1024;
/** How often an unread answer is checked, and so the least time it may take: enough even over a slow line. */
const PATIENCE_MS = 10_000;

export function boundUnreadAnswers(
  server: FastifyInstance,
  { orgBytes = ORG_BYTES, patienceMs = PATIENCE_MS } = {},
): void {
  const byOrg = new Map<string, number>();
  const add = (orgId: string, bytes: number) => {
    const sum = (byOrg.get(orgId) ?? 0) + bytes;
    if (sum > 0) byOrg.set(orgId, sum);
    else byOrg.delete(orgId);
  };
  server.addHook("onSend", (request, reply, payload, done) => {
    const bytes = sizeOf(payload);
    const orgId = request.principal?.orgId;
    if (bytes > SMALL_BYTES && orgId !== undefined) {
      add(orgId, bytes);
      const check = setInterval(() => {
        if ((byOrg.get(orgId) ?? 0) <= orgBytes) return;
        // Subtracted at once, so that the answers checked next may stay.
        forget();
        reply.raw.off("close", forget).destroy();
      }, patienceMs).unref();
      const forget = () => {
        clearInterval(check);
        add(orgId, -bytes);
      };
      onceClosed(reply.raw, forget);
    }
    done(null, payload);
  });
}

/** Bytes of a complete answer; streams have back-pressure. */
function sizeOf(payload: unknown): number {
  return typeof payload === "string" || Buffer.isBuffer(payload) ? Buffer.byteLength(payload) : 0;
}
