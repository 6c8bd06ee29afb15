/**
 * Answers that are in this process's memory because their clients do not read them. A few large ones may wait for as long
 * as they like; where those of one organisation take much together, who is slow as well is let go.
 */
import type { ServerResponse } from "node:http";
import type { FastifyInstance } from "fastify";

/** What all unread answers of an organisation may take: five of the largest lists. */
const ORG_BYTES = 128 * 1024 * 1024;
/** What a socket holds anyway. */
const SMALL_BYTES = 64 * 1024;
/** Enough for a client that reads, also over a slow line: the kernel takes the first part at once. */
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
    if (bytes > SMALL_BYTES && orgId !== undefined && isOpen(reply.raw)) {
      add(orgId, bytes);
      const look = setInterval(() => {
        if ((byOrg.get(orgId) ?? 0) <= orgBytes) return;
        // Counted out at once: those that are looked at next may stay.
        forget();
        reply.raw.destroy();
      }, patienceMs).unref();
      const forget = () => {
        clearInterval(look);
        reply.raw.off("close", forget);
        add(orgId, -bytes);
      };
      reply.raw.once("close", forget);
    }
    done(null, payload);
  });
}

/** One that has closed tells so no more. */
function isOpen(response: ServerResponse): boolean {
  return !response.closed && !response.destroyed;
}

/** Of an answer that is whole; streams wait for their readers by themselves. */
function sizeOf(payload: unknown): number {
  return typeof payload === "string" || Buffer.isBuffer(payload) ? Buffer.byteLength(payload) : 0;
}
