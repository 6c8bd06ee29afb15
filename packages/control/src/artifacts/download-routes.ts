/** The public route behind signed links. Its files come from guests: no browser shows one as a page of this service. */
import { Readable } from "node:stream";
import type { FastifyReply } from "fastify";
import { z } from "zod";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { clientGone } from "../http/sse.ts";
import { contentTypeOf } from "./content-type.ts";
import type { ArtifactDeps } from "./deps.ts";
import { openLink, type StoredFile } from "./download.ts";
import { wantedRange } from "./range.ts";

const LinkParams = z.object({ aid: z.string(), position: z.coerce.number().int().min(0).max(1_000_000) });
const LinkQuery = z.object({
  until: z.coerce.number().int().min(0).max(1e12),
  signature: z.string().regex(/^[\w-]{0,100}$/, "must be as it is in the link"),
});
const bytes = z.string().meta({ format: "binary", description: "The bytes of the file" });
const answer = (description: string) => ({
  description,
  content: { "application/octet-stream": { schema: bytes } },
});

export function addDownloadRoute(server: Server, deps: ArtifactDeps): void {
  const schema = {
    tags: ["Artifacts"],
    operationId: "downloadArtifactFile",
    summary: "Download a file of an artifact by its signed link; needs no credential",
    security: [],
    params: LinkParams,
    querystring: LinkQuery,
    response: {
      200: answer("The file"),
      206: answer("A range of it"),
      ...errorAnswers("forbidden", "not_found"),
    },
  };
  server.get(
    "/v1/artifacts/:aid/files/:position",
    { schema, config: { isPublic: true } },
    async (request, reply) => {
      const { aid: artifactId, position } = request.params;
      const stored = await openLink(deps, { artifactId, position, ...request.query });
      const ifRange = request.headers["if-range"];
      const isCurrent = ifRange === undefined || ifRange === etagOf(stored);
      return send(reply, stored, isCurrent ? request.headers.range : undefined);
    },
  );
}

/** Captured files never change. */
const etagOf = ({ file }: StoredFile) => `"${file.artifact_id}-${file.position}"`;

function send(reply: FastifyReply, stored: StoredFile, range: string | undefined): FastifyReply {
  const { path, size_bytes: size } = stored.file;
  const wanted = wantedRange(range, size);
  const name = encodeURIComponent(path.slice(path.lastIndexOf("/") + 1)).replaceAll("'", "%27");
  reply.headers({
    etag: etagOf(stored),
    "accept-ranges": "bytes",
    "cache-control": "private, no-store",
    "content-disposition": `attachment; filename*=UTF-8''${name}`,
    "content-security-policy": "sandbox; default-src 'none'",
    "x-content-type-options": "nosniff",
    "content-type": contentTypeOf(path) ?? "application/octet-stream",
  });
  if (wanted === "none")
    return reply
      .status(416)
      .headers({ "content-range": `bytes */${size}`, "content-length": 0 })
      .send("");
  const { first, last } = wanted === "all" ? { first: 0, last: size - 1 } : wanted;
  if (wanted !== "all") reply.status(206).header("content-range", `bytes ${first}-${last}/${size}`);
  reply.header("content-length", last + 1 - first);
  return reply.send(Readable.from(stored.read(first, last, clientGone(reply)), { objectMode: false }));
}
