import { pipeline } from "node:stream";
import { FileUploaded } from "@vivarium/contract/api";
import { PacedBody } from "@vivarium/http1/body-rate";
import type { FastifyReply } from "fastify";
import { z } from "zod";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { takeRawBodies } from "../http/body.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { clientGone } from "../http/sse.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { SessionParams } from "../sessions/params.ts";
import { type Download, downloadFile } from "./download.ts";
import { PathQuery } from "./query.ts";
import { uploadFile } from "./upload.ts";

const PATH = "/v1/sessions/:id/files/stream";
const common = { tags: ["Files"], params: SessionParams, querystring: PathQuery };
const refusals = errorAnswers(
  "forbidden",
  "not_found",
  "conflict",
  "session_ended",
  "rate_limited",
  "bad_gateway",
);
const bytes = z.string().meta({ format: "binary", description: "The bytes of the file" });

export function addFileStreamRoutes(server: Server, deps: MoveDeps): void {
  takeRawBodies(server, (raw) => addUpload(raw, deps));
  const download = {
    ...common,
    operationId: "downloadFile",
    summary: "Download a file of any size",
    response: {
      200: { description: "The file", content: { "application/octet-stream": { schema: bytes } } },
      ...refusals,
    },
  };
  server.get(PATH, { schema: download }, async (request, reply) => {
    const call = { sessionId: request.params.id, path: request.query.path, signal: clientGone(reply) };
    return send(reply, await downloadFile(deps, scopeOf(principalOf(request)), call));
  });
}

function addUpload(server: Server, deps: MoveDeps): void {
  const upload = {
    ...common,
    operationId: "uploadFile",
    summary: "Upload a file of any size as the raw body, with any Content-Type",
    response: { 200: FileUploaded, ...refusals },
  };
  server.put(PATH, { schema: upload, config: { takesRawBody: true } }, async (request, reply) => {
    const body = new PacedBody(request.raw);
    const call = { sessionId: request.params.id, path: request.query.path, body, signal: clientGone(reply) };
    return await uploadFile(deps, scopeOf(principalOf(request)), call);
  });
}

/** Hazard: a short answer with a clean end looks complete. So a file that breaks off breaks the connection. */
function send(reply: FastifyReply, { content, sizeBytes, release }: Download): FastifyReply {
  reply.hijack();
  reply.raw.writeHead(200, {
    ...(reply.getHeaders() as Record<string, string>),
    "content-type": "application/octet-stream",
    "content-length": sizeBytes,
  });
  pipeline(content, reply.raw, (error) => {
    if (error) reply.raw.destroy();
    release();
  });
  return reply;
}
