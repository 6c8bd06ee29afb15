/** Routes of files, except for upload and download. */
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
import { z } from "zod";
import type { Scope } from "../access/principal.ts";
import { machineCall, machineSchema } from "../guest/routes.ts";
import type { Server } from "../http/server.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { writeBatch } from "./batch.ts";
import { deleteFile, makeDirectory, renameFile, writeFile } from "./change.ts";
import { DeleteQuery, FILES_ROOT, type FileCall, FilesQuery, filesRead, required } from "./query.ts";
import { findFiles, grepFiles, listFiles, readFile } from "./read.ts";
import { addFileStreamRoutes } from "./stream-routes.ts";

const PATH = "/v1/sessions/:id/files";
const bodyLimit = LIMITS.filesJsonBodyBytes;

export function addFileRoutes(server: Server, deps: MoveDeps): void {
  addReads(server, deps);
  addWrites(server, deps);
  addChanges(server, deps);
  addFileStreamRoutes(server, deps);
}

function addReads(server: Server, deps: MoveDeps): void {
  const schema = {
    ...machineSchema("Files", z.union([FileContent, FileEntries, FoundPaths, FoundLines])),
    operationId: "readFiles",
    summary: "Read a file, list a directory, find files by name or lines by content",
    querystring: FilesQuery,
  };
  server.get(PATH, { schema }, async (request, reply) => {
    const read = filesRead(request.query);
    if (read.op === "read") return await readFile(deps, ...machineCall(request, reply, read));
    if (read.op === "list") return await listFiles(deps, ...machineCall(request, reply, read));
    const search = read.op === "find" ? findFiles : grepFiles;
    return await search(deps, ...machineCall(request, reply, read));
  });
}

function addWrites(server: Server, deps: MoveDeps): void {
  const write = {
    ...machineSchema("Files", FileWriteResult),
    operationId: "writeFile",
    summary: "Write a file, in place of the old one or not at all",
    body: FileWrite,
  };
  server.put(PATH, { schema: write, bodyLimit }, async (request, reply) =>
    writeFile(deps, ...machineCall(request, reply, request.body)),
  );
  const batch = {
    ...machineSchema("Files", FileBatchResult),
    operationId: "writeFiles",
    summary: "Write several files, each with an outcome of its own",
    body: FileBatch,
  };
  server.put(`${PATH}/batch`, { schema: batch, bodyLimit }, async (request, reply) =>
    writeBatch(deps, ...machineCall(request, reply, request.body)),
  );
  const legacy = {
    ...machineSchema("Files", z.union([FileContent, FileWriteResult, FileEntries])),
    operationId: "callFiles",
    summary: "Read, write or list; the older form of these calls",
    body: LegacyFileCall,
  };
  server.post(PATH, { schema: legacy, bodyLimit }, async (request, reply) =>
    callByOp(deps, ...machineCall(request, reply, request.body)),
  );
}

/** Handles the older form of read, write and list (docs/spec/files.md). */
async function callByOp(
  deps: MoveDeps,
  scope: Scope,
  { op, encoding, content, ...call }: Omit<FileCall, "path"> & LegacyFileCall,
): Promise<FileContent | FileWriteResult | FileEntries> {
  if (op === "list") return await listFiles(deps, scope, { ...call, path: call.path ?? FILES_ROOT });
  const path = required("path", call.path);
  if (op === "read") return await readFile(deps, scope, { ...call, path, encoding: encoding ?? "text" });
  return await writeFile(deps, scope, { ...call, path, content: required("content", content), encoding });
}

function addChanges(server: Server, deps: MoveDeps): void {
  const remove = {
    ...machineSchema("Files", FileDeleted),
    operationId: "deleteFile",
    summary: "Delete a file or a directory",
    querystring: DeleteQuery,
  };
  server.delete(PATH, { schema: remove }, async (request, reply) =>
    deleteFile(deps, ...machineCall(request, reply, request.query)),
  );
  const mkdir = {
    ...machineSchema("Files", Mkdir),
    operationId: "makeDirectory",
    summary: "Make a directory and its parents; one that exists is fine",
    body: Mkdir,
  };
  server.post(`${PATH}/mkdir`, { schema: mkdir }, async (request, reply) =>
    makeDirectory(deps, ...machineCall(request, reply, request.body)),
  );
  const rename = {
    ...machineSchema("Files", Rename),
    operationId: "renameFile",
    summary: "Rename a file or a directory; a file at the destination is replaced",
    body: Rename,
  };
  server.post(`${PATH}/rename`, { schema: rename }, async (request, reply) =>
    renameFile(deps, ...machineCall(request, reply, request.body)),
  );
}
