import {
  FileBatch,
  FileBatchResult,
  FileContent,
  FileDeleted,
  FileEntries,
  FileWrite,
  FileWriteResult,
  FoundLines,
  FoundPaths,
  LegacyFileCall,
  LIMITS,
  Mkdir,
  Rename,
} from "@vivarium/contract/api";
import type { FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { scopeOf } from "../access/principal.ts";
import { principalOf } from "../http/authenticate.ts";
import { errorAnswers } from "../http/error-answers.ts";
import type { Server } from "../http/server.ts";
import { clientGone } from "../http/sse.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { SessionParams } from "../sessions/params.ts";
import { writeBatch } from "./batch.ts";
import { deleteFile, makeDirectory, renameFile } from "./change.ts";
import { callByOp } from "./op-call.ts";
import { DeleteQuery, FilesQuery, filesRead } from "./query.ts";
import { listFiles, readFile } from "./read.ts";
import { findFiles, grepFiles } from "./search.ts";
import { addFileStreamRoutes } from "./stream-routes.ts";
import { writeFile } from "./write.ts";

const PATH = "/v1/sessions/:id/files";
const bodyLimit = LIMITS.filesJsonBodyBytes;
const common = { tags: ["Files"], params: SessionParams };
const refusals = errorAnswers(
  "forbidden",
  "not_found",
  "conflict",
  "session_ended",
  "rate_limited",
  "bad_gateway",
);

export function addFileRoutes(server: Server, deps: MoveDeps): void {
  addReads(server, deps);
  addWrites(server, deps);
  addChanges(server, deps);
  addFileStreamRoutes(server, deps);
}

/** The caller's scope, and the call with its signal. */
function callOf(request: FastifyRequest<{ Params: { id: string } }>, reply: FastifyReply) {
  const call = { sessionId: request.params.id, signal: clientGone(reply) };
  return { scope: scopeOf(principalOf(request)), call };
}

function addReads(server: Server, deps: MoveDeps): void {
  const schema = {
    ...common,
    operationId: "readFiles",
    summary: "Read a file, list a directory, find files by name or lines by content",
    querystring: FilesQuery,
    response: { 200: z.union([FileContent, FileEntries, FoundPaths, FoundLines]), ...refusals },
  };
  server.get(PATH, { schema }, async (request, reply) => {
    const read = filesRead(request.query);
    const { scope, call } = callOf(request, reply);
    switch (read.op) {
      case "read":
        return await readFile(deps, scope, { ...call, ...read });
      case "list":
        return await listFiles(deps, scope, { ...call, ...read });
      case "find":
        return await findFiles(deps, scope, { ...call, ...read });
      case "grep":
        return await grepFiles(deps, scope, { ...call, ...read });
    }
  });
}

function addWrites(server: Server, deps: MoveDeps): void {
  const write = {
    ...common,
    operationId: "writeFile",
    summary: "Write a file, in place of the old one or not at all",
    body: FileWrite,
    response: { 200: FileWriteResult, ...refusals },
  };
  server.put(PATH, { schema: write, bodyLimit }, async (request, reply) => {
    const { scope, call } = callOf(request, reply);
    return await writeFile(deps, scope, { ...call, file: request.body });
  });
  const batch = {
    ...common,
    operationId: "writeFiles",
    summary: "Write several files, each with an outcome of its own",
    body: FileBatch,
    response: { 200: FileBatchResult, ...refusals },
  };
  server.put(`${PATH}/batch`, { schema: batch, bodyLimit }, async (request, reply) => {
    const { scope, call } = callOf(request, reply);
    return await writeBatch(deps, scope, { ...call, files: request.body.files });
  });
  const legacy = {
    ...common,
    operationId: "callFiles",
    summary: "Read, write or list; the older form of these calls",
    body: LegacyFileCall,
    response: { 200: z.union([FileContent, FileWriteResult, FileEntries]), ...refusals },
  };
  server.post(PATH, { schema: legacy, bodyLimit }, async (request, reply) => {
    const { scope, call } = callOf(request, reply);
    return await callByOp(deps, scope, { ...call, body: request.body });
  });
}

function addChanges(server: Server, deps: MoveDeps): void {
  const remove = {
    ...common,
    operationId: "deleteFile",
    summary: "Delete a file or a directory",
    querystring: DeleteQuery,
    response: { 200: FileDeleted, ...refusals },
  };
  server.delete(PATH, { schema: remove }, async (request, reply) => {
    const { scope, call } = callOf(request, reply);
    const { path, recursive = false } = request.query;
    return await deleteFile(deps, scope, { ...call, path, recursive });
  });
  const mkdir = {
    ...common,
    operationId: "makeDirectory",
    summary: "Make a directory and its parents; one that exists is fine",
    body: Mkdir,
    response: { 200: Mkdir, ...refusals },
  };
  server.post(`${PATH}/mkdir`, { schema: mkdir }, async (request, reply) => {
    const { scope, call } = callOf(request, reply);
    return await makeDirectory(deps, scope, { ...call, path: request.body.path });
  });
  const rename = {
    ...common,
    operationId: "renameFile",
    summary: "Rename a file or a directory; a file at the destination is replaced",
    body: Rename,
    response: { 200: Rename, ...refusals },
  };
  server.post(`${PATH}/rename`, { schema: rename }, async (request, reply) => {
    const { scope, call } = callOf(request, reply);
    const { path, dest_path: destPath } = request.body;
    return await renameFile(deps, scope, { ...call, path, destPath });
  });
}
