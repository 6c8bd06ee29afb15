/** Routes that upload and download a file as raw bytes. */
import { pipeline } from "node:stream";
import { FileUploaded } from "@vivarium/contract/api";
import { PacedBody } from "@vivarium/http1/body-rate";
import type { FastifyReply } from "fastify";
import { z } from "zod";
import { MACHINE_REFUSALS, machineCall, machineSchema } from "../guest/routes.ts";
import { takeRawBodies } from "../http/body.ts";
import type { Server } from "../http/server.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { SessionParams } from "../sessions/params.ts";
import { type Download, downloadFile } from "./download.ts";
import { PathQuery } from "./query.ts";
import { uploadFile } from "./upload.ts";

const PATH = "/v1/sessions/:id/files/stream";
const bytes = z.string().meta({ format: "binary", description: "The bytes of the file" });

export function addFileStreamRoutes(server: Server, deps: MoveDeps): void {
  takeRawBodies(server, (raw) => addUpload(raw, deps));
  const download = {
    tags: ["Files"],
    params: SessionParams,
    operationId: "downloadFile",
    summary: "Download a file of any size",
    querystring: PathQuery,
    response: {
      200: { description: "The file", content: { "application/octet-stream": { schema: bytes } } },
      ...MACHINE_REFUSALS,
    },
  };
  server.get(PATH, { schema: download }, async (request, reply) =>
    send(reply, await downloadFile(deps, ...machineCall(request, reply, request.query))),
  );
}

function addUpload(server: Server, deps: MoveDeps): void {
  const upload = {
    ...machineSchema("Files", FileUploaded),
    operationId: "uploadFile",
    summary: "Upload a file of any size as the raw body, with any Content-Type",
    querystring: PathQuery,
  };
  server.put(PATH, { schema: upload, config: { takesRawBody: true } }, async (request, reply) => {
    const input = { path: request.query.path, body: new PacedBody(request.raw) };
    return await uploadFile(deps, ...machineCall(request, reply, input));
  });
}

/** Hazard: a short answer with a clean end looks complete. So a file that breaks off destroys the connection. */
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
