/** Routes of artifacts. */
import { Artifact, ArtifactCapture, ArtifactExtension, ArtifactList } from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { MACHINE_REFUSALS } from "../guest/routes.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { SessionParams } from "../sessions/params.ts";
import { deleteArtifact } from "./delete.ts";
import type { ArtifactDeps } from "./deps.ts";
import { addDownloadRoute } from "./download-routes.ts";
import { extendArtifact } from "./extend.ts";
import { getArtifact, listArtifacts } from "./get.ts";
import { toManifest, toManifests } from "./record.ts";
import { requestCapture } from "./request.ts";

const tags = ["Artifacts"];
const ArtifactParams = z.object({ aid: z.string() });
const OfSession = SessionParams.extend(ArtifactParams.shape);

export function addArtifactRoutes(server: Server, deps: ArtifactDeps): void {
  addSessionRoutes(server, deps);
  addDownloadRoute(server, deps);
  const one = { tags, params: ArtifactParams };
  const read = {
    ...one,
    operationId: "getArtifact",
    summary: "Read an artifact's manifest, with new links to its files",
    response: { 200: Artifact, ...errorAnswers("not_found") },
  };
  server.get("/v1/artifacts/:aid", { schema: read }, async (request) => {
    const scope = scopeOf(principalOf(request));
    return await toManifest(deps, await getArtifact(deps.db, scope, request.params.aid));
  });
  const extend = {
    ...one,
    operationId: "extendArtifact",
    summary: "Keep an artifact for longer, up to 90 days from its capture",
    body: ArtifactExtension,
    response: { 200: Artifact, ...errorAnswers("not_found") },
  };
  server.post("/v1/artifacts/:aid/extend", { schema: extend }, async (request) => {
    const principal = principalOf(request);
    const input = { id: request.params.aid, body: request.body, by: callerOf(principal, request) };
    return await toManifest(deps, await extendArtifact(deps, scopeOf(principal), input));
  });
  const remove = {
    ...one,
    operationId: "deleteArtifact",
    summary: "Delete an artifact and its files",
    response: { 204: z.void().meta({ description: "Deleted" }), ...errorAnswers("not_found") },
  };
  server.delete("/v1/artifacts/:aid", { schema: remove }, async (request, reply) => {
    const principal = principalOf(request);
    const input = { id: request.params.aid, by: callerOf(principal, request) };
    await deleteArtifact(deps, scopeOf(principal), input);
    return await reply.status(204).send();
  });
}

function addSessionRoutes(server: Server, deps: ArtifactDeps): void {
  const capture = {
    tags,
    params: SessionParams,
    operationId: "captureArtifacts",
    summary: "Copy files out of a session; they are there once the artifact is ready",
    body: ArtifactCapture,
    response: { 202: Artifact, ...MACHINE_REFUSALS },
  };
  server.post("/v1/sessions/:id/artifacts", { schema: capture }, async (request, reply) => {
    const principal = principalOf(request);
    const input = { sessionId: request.params.id, body: request.body, by: callerOf(principal, request) };
    const artifact = await requestCapture(deps, scopeOf(principal), input);
    return await reply.status(202).send(await toManifest(deps, artifact));
  });
  const list = {
    tags,
    params: SessionParams,
    operationId: "listArtifacts",
    summary: "List a session's artifacts, newest first, also after its end",
    response: { 200: ArtifactList, ...errorAnswers("not_found", "conflict") },
  };
  server.get("/v1/sessions/:id/artifacts", { schema: list }, async (request) => {
    const rows = await listArtifacts(deps.db, scopeOf(principalOf(request)), request.params.id);
    return { artifacts: await toManifests(deps, rows) };
  });
  const read = {
    tags,
    params: OfSession,
    operationId: "getSessionArtifact",
    summary: "Read the manifest of a session's artifact, also after its end",
    response: { 200: Artifact, ...errorAnswers("not_found") },
  };
  server.get("/v1/sessions/:id/artifacts/:aid", { schema: read }, async (request) => {
    const { id: sessionId, aid } = request.params;
    return await toManifest(
      deps,
      await getArtifact(deps.db, scopeOf(principalOf(request)), aid, { sessionId }),
    );
  });
}
