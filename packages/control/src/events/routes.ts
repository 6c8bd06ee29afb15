/** The route that streams events, or reads a page of them. */
import { EventList } from "@vivarium/contract/api";
import type { FastifyReply, FastifyRequest } from "fastify";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { clientGone, EventStream } from "../http/sse.ts";
import type { EventDeps } from "./feed.ts";
import { followEvents } from "./follow.ts";
import { EventQuery, filterOf, listPage } from "./list.ts";
import { startAfter, startNow } from "./start.ts";
import type { EventFilter } from "./store.ts";

export function addEventRoutes(server: Server, deps: EventDeps): void {
  server.get(
    "/v1/events",
    {
      schema: {
        operationId: "listEvents",
        summary:
          "Follow what happens in the organisation, as server-sent events; with `Accept: application/json` read what is kept, oldest first",
        tags: ["Events"],
        querystring: EventQuery,
        response: { 200: EventList, ...errorAnswers() },
      },
    },
    async (request, reply) => {
      const filter = filterOf(scopeOf(principalOf(request)), request.query);
      // A caller who changed something through any process, and then reads, must find its event.
      await deps.eventFeed.look();
      if (!wantsJson(request)) return await stream(deps, filter, request, reply);
      const { events, nextCursor } = await listPage(deps.db, filter, request.query);
      return { events, ...(nextCursor !== undefined && { next_cursor: nextCursor }) };
    },
  );
}

function wantsJson({ headers: { accept = "" } }: FastifyRequest): boolean {
  return /\bapplication\/json\b/i.test(accept) && !/\btext\/event-stream\b/i.test(accept);
}

async function stream(
  deps: EventDeps,
  filter: EventFilter,
  request: FastifyRequest<{ Querystring: EventQuery }>,
  reply: FastifyReply,
): Promise<FastifyReply> {
  // A client that reconnects by itself repeats its URL. So the header is newer than `after`.
  const lastId = [request.headers["last-event-id"]].flat()[0] || request.query.after;
  const start =
    lastId === undefined ? await startNow(deps, filter) : await startAfter(deps.db, filter, lastId);
  const over = AbortSignal.any([clientGone(reply), deps.eventFeed.closing]);
  // The connection ends with its stream, so it serves no other request.
  reply.header("connection", "close");
  const following = followEvents(deps, { filter, start, over }, new EventStream(reply));
  await deps.eventFeed.keep(following);
  return reply;
}
