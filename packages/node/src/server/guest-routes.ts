/** Routes `/v1/machines/{id}/guest/…`, which pass requests about files and processes on to the machine's agent. */
import type { IncomingMessage } from "node:http";
import { FileWritten } from "@vivarium/contract/guest";
import { readAtMost } from "@vivarium/kit/read-at-most";
import { MIB } from "@vivarium/kit/sizes";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { type GuestCall, guestCall } from "../guest/calls.ts";
import type { AgentClient } from "../guest/client.ts";
import { callGuest } from "../guest/json-calls.ts";
import { readContent, readList, readLog } from "../guest/streams.ts";
import { uploadToGuest } from "../guest/uploads.ts";
import { NodeError } from "../node-error.ts";
import { machineId } from "./params.ts";
import { sendStream } from "./send-stream.ts";

const JSON_BODY_BYTES = 4 * MIB;
/** How long a caller may continue to send a body after it was refused. */
const DRAIN_WITHIN_MS = 10_000;

interface GuestDeps {
  table: { getRunning(machineId: string): { agent: AgentClient } };
}

export function registerGuestRoutes(server: FastifyInstance, deps: GuestDeps): void {
  server.register((scope, _options, ready) => {
    // Bodies are for the agent, so they are not parsed here.
    scope.removeAllContentTypeParsers();
    scope.addContentTypeParser("*", (_request, payload, done) => done(null, payload));
    scope.route({
      method: ["GET", "PUT", "POST", "DELETE"],
      url: "/v1/machines/:machine_id/guest/*",
      handler: async (request, reply) => {
        try {
          const { agent } = deps.table.getRunning(machineId(request.params));
          return await handOn(agent, guestCall(request.method, agentTarget(request)), request.raw, reply);
        } finally {
          drain(request.raw);
        }
      },
    });
    ready();
  });
}

async function handOn(agent: AgentClient, call: GuestCall, request: IncomingMessage, reply: FastifyReply) {
  const signal = whenCallerLeaves(reply);
  switch (call.kind) {
    case "json":
      return await callGuest(agent, call, call.hasBody ? await readBody(request) : undefined, signal);
    case "upload": {
      const headers = lengthOf(request);
      const { method, path } = call;
      const upload = { method, path, headers, signal, source: request, answer: FileWritten };
      return await uploadToGuest(agent, upload);
    }
    case "content": {
      const { bytes, stream } = await readContent(agent, call, signal);
      sendStream(reply, stream, { "content-length": bytes });
      return reply;
    }
    case "list":
      sendStream(reply, await readList(agent, call, signal));
      return reply;
    case "log":
      sendStream(reply, await readLog(agent, call, signal));
      return reply;
  }
}

/** Path and query of the request at the agent. */
function agentTarget(request: FastifyRequest): string {
  const url = request.raw.url ?? "";
  return `/v1${url.slice(url.indexOf("/guest/") + "/guest".length)}`;
}

/** The header with the body's length, by which the agent notices a body that ends early. */
function lengthOf(request: IncomingMessage): Record<string, string> {
  const length = request.headers["content-length"];
  return length === undefined ? {} : { "content-length": length };
}

function whenCallerLeaves(reply: FastifyReply): AbortSignal {
  const left = new AbortController();
  reply.raw.once("close", () => left.abort());
  if (reply.raw.destroyed) left.abort();
  return left.signal;
}

async function readBody(request: IncomingMessage): Promise<Buffer> {
  const body = await readAtMost(request.iterator({ destroyOnReturn: false }), JSON_BODY_BYTES);
  if (body) return body;
  throw new NodeError("invalid", `the body is longer than ${JSON_BODY_BYTES} bytes`);
}

/** Reads and drops the rest of a refused body for a while: a caller that cannot send would not read the refusal. */
function drain(request: IncomingMessage): void {
  if (request.complete || request.destroyed) return;
  const timer = setTimeout(() => request.socket.destroy(), DRAIN_WITHIN_MS).unref();
  request.once("close", () => clearTimeout(timer)).once("end", () => clearTimeout(timer));
  request.resume();
}
