/** contract/node over HTTP: parse, call, answer. Refusals are `{code, message}` with a status of NODE_ERRORS. */
import type { ServerResponse } from "node:http";
import { pipeline, type Readable } from "node:stream";
import {
  ExecCall,
  MachineId,
  NODE_ERRORS,
  SnapshotId,
  SnapshotSpec,
  StartSpec,
} from "@vivarium/contract/node";
import type { FastifyInstance, FastifyReply, FastifyRequest } from "fastify";
import { z } from "zod";
import { execInGuest } from "../guest/exec.ts";
import { writeGuestFile } from "../guest/files.ts";
import { nodeInfo } from "../info.ts";
import { continueMachine } from "../machines/continue.ts";
import { type StartDeps, startMachine } from "../machines/start.ts";
import { stopMachine } from "../machines/stop.ts";
import { NodeError } from "../node-error.ts";
import { saveSnapshot } from "../snapshots/save.ts";
import { statusOf } from "../snapshots/table.ts";

const MachineParams = z.object({ machine_id: MachineId });
const SnapshotParams = z.object({ snapshot_id: SnapshotId });
const FilesQuery = z.object({ path: z.string().min(1), mode: z.string().optional() });

export function registerRoutes(server: FastifyInstance, deps: StartDeps): void {
  server.setErrorHandler((error, request, reply) => sendError(error, request, reply));
  server.addContentTypeParser("application/octet-stream", (_request, payload, done) => done(null, payload));

  server.get("/v1/info", () => nodeInfo(deps));
  server.get("/v1/machines", () => ({ machines: deps.table.list() }));

  server.get("/v1/machines/:machine_id", (request) => {
    const id = machineId(request);
    const status = deps.table.list().find((machine) => machine.machine_id === id);
    if (!status) throw new NodeError("machine_not_found", `no machine ${id} on this node`);
    return status;
  });

  server.put("/v1/machines/:machine_id", async (request) => {
    const machine = await startMachine(deps, machineId(request), parse(StartSpec, request.body));
    return machine.status();
  });

  server.delete("/v1/machines/:machine_id", async (request, reply) => {
    await stopMachine(deps, machineId(request));
    return reply.code(204).send();
  });

  server.post("/v1/machines/:machine_id/continue", async (request) => {
    return (await continueMachine(deps, machineId(request))).status();
  });

  server.post("/v1/machines/:machine_id/exec", async (request, reply) => {
    const machine = deps.table.getRunning(machineId(request));
    const frames = await execInGuest(machine.agent, parse(ExecCall, request.body));
    sendStream(reply, frames);
    return reply;
  });

  server.put("/v1/machines/:machine_id/files", async (request) => {
    const machine = deps.table.getRunning(machineId(request));
    return writeGuestFile(machine.agent, parse(FilesQuery, request.query), request.raw);
  });
  registerSnapshotRoutes(server, deps);
}

function registerSnapshotRoutes(server: FastifyInstance, deps: StartDeps): void {
  const { snapshots } = deps;
  server.get("/v1/snapshots", async () => ({ snapshots: await snapshots.list() }));

  server.get("/v1/snapshots/:snapshot_id", async (request) => {
    const id = snapshotId(request);
    return statusOf(id, (await snapshots.check(id)).manifest);
  });

  server.put("/v1/snapshots/:snapshot_id", async (request) => {
    const id = snapshotId(request);
    return statusOf(id, (await saveSnapshot(deps, id, parse(SnapshotSpec, request.body))).manifest);
  });

  server.delete("/v1/snapshots/:snapshot_id", async (request, reply) => {
    await snapshots.remove(snapshotId(request));
    return reply.code(204).send();
  });
}

/** Headers leave at once: they say that the command runs, which may be long before it prints anything. */
function sendStream(reply: FastifyReply, frames: Readable): void {
  reply.hijack();
  const response: ServerResponse = reply.raw;
  // Frames that fail after the caller has gone fail for nobody.
  frames.on("error", () => {});
  if (response.destroyed || response.socket?.destroyed) {
    // The caller left while the command was being started: it is killed like any whose caller leaves.
    frames.destroy();
    return;
  }
  response.writeHead(200, { "content-type": "application/octet-stream" });
  response.flushHeaders();
  // Ends the frames when the caller has gone, which kills the command; breaks the answer off when the frames fail.
  pipeline(frames, response, () => response.destroy());
}

function machineId(request: FastifyRequest): string {
  const parsed = MachineParams.safeParse(request.params);
  if (!parsed.success) throw new NodeError("machine_not_found", "no machine of this name on this node");
  return parsed.data.machine_id;
}

function snapshotId(request: FastifyRequest): string {
  const parsed = SnapshotParams.safeParse(request.params);
  if (!parsed.success) throw new NodeError("snapshot_not_found", "no snapshot of this name on this node");
  return parsed.data.snapshot_id;
}

function parse<T>(schema: z.ZodType<T>, value: unknown): T {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issue = parsed.error.issues[0];
  throw new NodeError("invalid", `${issue?.path.join(".") || "body"}: ${issue?.message ?? "does not fit"}`);
}

function sendError(error: unknown, request: FastifyRequest, reply: FastifyReply): FastifyReply {
  if (error instanceof NodeError) {
    return reply.code(NODE_ERRORS[error.code].status).send({ code: error.code, message: error.message });
  }
  const status = (error as { statusCode?: number }).statusCode ?? 500;
  if (status < 500) return reply.code(status).send({ code: "invalid", message: (error as Error).message });
  request.log.error({ err: error }, "call failed");
  return reply.code(500).send({ code: "internal", message: "unexpected failure on the node" });
}
