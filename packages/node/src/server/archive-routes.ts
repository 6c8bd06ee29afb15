/** Routes of contract/node for packing and unpacking saved states: parse, call, hand on the bodies. */
import { ARCHIVE_KEY_HEADER, PackQuery, SPACE_SECRET_HEADER, UnpackQuery } from "@vivarium/contract/node";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import type { Accepted, Archives } from "../archives/archives.ts";
import { archiveSecret, parse, snapshotId } from "./params.ts";

export function registerArchiveRoutes(server: FastifyInstance, { archives }: { archives: Archives }): void {
  server.post("/v1/snapshots/:snapshot_id/pack", async (request, reply) => {
    const id = snapshotId(request.params);
    const query = parse(PackQuery, request.query);
    await carryOut(await archives.pack(id, query, keysOf(request)), request, reply);
  });

  server.post("/v1/snapshots/:snapshot_id/unpack", async (request, reply) => {
    const id = snapshotId(request.params);
    const query = parse(UnpackQuery, request.query);
    await carryOut(await archives.unpack(id, query, keysOf(request)), request, reply);
  });
}

const keysOf = ({ headers }: FastifyRequest) => ({
  key: archiveSecret(headers, ARCHIVE_KEY_HEADER),
  secret: archiveSecret(headers, SPACE_SECRET_HEADER),
});

async function carryOut(accepted: Accepted, request: FastifyRequest, reply: FastifyReply): Promise<void> {
  reply.hijack();
  const { raw: response } = reply;
  // The failure of a write is noticed by who writes.
  response.on("error", () => {});
  if (!response.destroyed) {
    response.writeHead(200, { "content-type": "application/octet-stream" });
    response.flushHeaders();
  }
  await accepted({ asks: response, answers: request.raw });
}
