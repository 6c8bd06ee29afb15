/** Routes of projects. */
import { ProjectCreate, ProjectList, ProjectPatch, ProjectRecord } from "@vivarium/contract/api";
import { z } from "zod";
import { callerOf } from "../access/caller.ts";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import {
  createProject,
  deleteProject,
  getProject,
  type ProjectDeps,
  patchProject,
  toProject,
} from "./change.ts";
import { listProjects } from "./store.ts";

const tags = ["Projects"];
const params = z.object({ pid: z.string() });

export function addProjectRoutes(server: Server, deps: ProjectDeps): void {
  addReadingRoutes(server, deps);
  const create = {
    operationId: "createProject",
    summary: "Make a project",
    tags,
    body: ProjectCreate,
    response: { 201: ProjectRecord, ...errorAnswers("forbidden", "conflict") },
  };
  server.post("/v1/projects", { schema: create }, async (request, reply) => {
    const principal = principalOf(request);
    const input = { body: request.body, by: callerOf(principal, request) };
    return reply.status(201).send(await createProject(deps, principal, input));
  });
  const patch = {
    operationId: "updateProject",
    summary: "Rename a project, or replace its labels",
    tags,
    params,
    body: ProjectPatch,
    response: { 200: ProjectRecord, ...errorAnswers("forbidden", "not_found", "conflict") },
  };
  server.patch("/v1/projects/:pid", { schema: patch }, (request) => {
    const principal = principalOf(request);
    const input = { id: request.params.pid, patch: request.body, by: callerOf(principal, request) };
    return patchProject(deps, principal, input);
  });
  const remove = {
    operationId: "deleteProject",
    summary: "Delete a project without unfinished sessions, and revoke the keys that are bound to it",
    tags,
    params,
    response: {
      204: z.void().meta({ description: "Deleted" }),
      ...errorAnswers("forbidden", "not_found", "conflict"),
    },
  };
  server.delete("/v1/projects/:pid", { schema: remove }, async (request, reply) => {
    const principal = principalOf(request);
    await deleteProject(deps, principal, { id: request.params.pid, by: callerOf(principal, request) });
    return await reply.status(204).send();
  });
}

function addReadingRoutes(server: Server, { db }: ProjectDeps): void {
  const list = {
    operationId: "listProjects",
    summary: "List the projects of the organisation, or the one that the key is bound to",
    tags,
    response: { 200: ProjectList, ...errorAnswers() },
  };
  server.get("/v1/projects", { schema: list }, async (request) => {
    const rows = await listProjects(db, scopeOf(principalOf(request)));
    return { projects: rows.map((row) => toProject(row)) };
  });
  const get = {
    operationId: "getProject",
    summary: "Read a project",
    tags,
    params,
    response: { 200: ProjectRecord, ...errorAnswers("not_found") },
  };
  server.get("/v1/projects/:pid", { schema: get }, (request) =>
    getProject(db, scopeOf(principalOf(request)), request.params.pid),
  );
}
