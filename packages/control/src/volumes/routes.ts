/** Routes of volumes. */
import { Volume, VolumeCreate, VolumeList, VolumePatch } from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { createVolume } from "./create.ts";
import { deleteVolume } from "./delete.ts";
import type { VolumeDeps } from "./deps.ts";
import { getVolume } from "./get.ts";
import { growVolume } from "./grow.ts";
import { toVolume } from "./record.ts";
import { listVolumeRows } from "./store.ts";

const VolumeParams = z.object({ vid: z.string() });
const tags = ["Volumes"];

export function addVolumeRoutes(server: Server, deps: VolumeDeps): void {
  server.post(
    "/v1/volumes",
    {
      schema: {
        operationId: "createVolume",
        summary: "Make an empty volume",
        tags,
        body: VolumeCreate.optional(),
        response: { 201: Volume, ...errorAnswers("conflict", "node_disk_pressure") },
      },
    },
    async (request, reply) => {
      const principal = principalOf(request);
      const input = { sizeGb: request.body?.size_gb ?? undefined, by: callerOf(principal, request) };
      return await reply.status(201).send(toVolume(await createVolume(deps, principal, input)));
    },
  );
  server.get(
    "/v1/volumes",
    {
      schema: {
        operationId: "listVolumes",
        summary: "List the organisation's volumes, newest first",
        tags,
        response: { 200: VolumeList, ...errorAnswers() },
      },
    },
    async (request) => {
      const rows = await listVolumeRows(deps.db, scopeOf(principalOf(request)));
      return { volumes: rows.map(toVolume) };
    },
  );
  server.get(
    "/v1/volumes/:vid",
    {
      schema: {
        operationId: "getVolume",
        summary: "Read a volume",
        tags,
        params: VolumeParams,
        response: { 200: Volume, ...errorAnswers("not_found") },
      },
    },
    async (request) => toVolume(await getVolume(deps.db, scopeOf(principalOf(request)), request.params.vid)),
  );
  addChanges(server, deps);
}

function addChanges(server: Server, deps: VolumeDeps): void {
  server.patch(
    "/v1/volumes/:vid",
    {
      schema: {
        operationId: "growVolume",
        summary: "Make a volume larger, from its next session on",
        tags,
        params: VolumeParams,
        body: VolumePatch,
        response: { 200: Volume, ...errorAnswers("not_found", "conflict") },
      },
    },
    async (request) => {
      const principal = principalOf(request);
      const { size_gb: sizeGb } = request.body;
      const input = { id: request.params.vid, sizeGb, by: callerOf(principal, request) };
      return toVolume(await growVolume(deps, scopeOf(principal), input));
    },
  );
  server.delete(
    "/v1/volumes/:vid",
    {
      schema: {
        operationId: "deleteVolume",
        summary: "Delete a volume and what is on it",
        tags,
        params: VolumeParams,
        response: {
          204: z.void().meta({ description: "Deleted" }),
          ...errorAnswers("not_found", "conflict"),
        },
      },
    },
    async (request, reply) => {
      const principal = principalOf(request);
      const input = { id: request.params.vid, by: callerOf(principal, request) };
      await deleteVolume(deps, scopeOf(principal), input);
      return await reply.status(204).send();
    },
  );
}
