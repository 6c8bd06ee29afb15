/** Routes of contract/node for machines and snapshots: parse, call, answer. */
import { ExecCall, SnapshotSpec, StartSpec, VolumeSpec } from "@vivarium/contract/node";
import type { FastifyInstance } from "fastify";
import { z } from "zod";
import type { Archives } from "../archives/archives.ts";
import { execInGuest } from "../guest/exec.ts";
import { uploadToGuest } from "../guest/uploads.ts";
import { continueMachine } from "../machines/continue.ts";
import type { MachineDeps } from "../machines/deps.ts";
import { saveSnapshot } from "../machines/save-snapshot.ts";
import { startMachine } from "../machines/start.ts";
import { stopMachine } from "../machines/stop.ts";
import { NodeError } from "../node-error.ts";
import { isBaselineId } from "../snapshots/baseline-id.ts";
import { describeSnapshot, listSnapshots } from "../snapshots/describe-snapshot.ts";
import { registerArchiveRoutes } from "./archive-routes.ts";
import { registerGuestRoutes } from "./guest-routes.ts";
import { nodeInfo } from "./info.ts";
import { registerNetworkRoutes } from "./network-routes.ts";
import { machineId, parse, snapshotId, stateKey, volumeId } from "./params.ts";
import { answerRefusals } from "./refusals.ts";
import { sendStream } from "./send-stream.ts";
import { registerUpgrades } from "./upgrades.ts";

export interface RouteDeps extends MachineDeps {
  archives: Archives;
}

const Written = z.object({ bytes: z.int().min(0) });
const FilesQuery = z.object({ path: z.string().min(1), mode: z.string().optional() });

export function registerRoutes(server: FastifyInstance, deps: RouteDeps): void {
  answerRefusals(server);
  server.addContentTypeParser("application/octet-stream", (_request, payload, done) => done(null, payload));

  server.get("/v1/info", () => nodeInfo(deps));
  server.get("/v1/machines", () => ({ machines: deps.table.list() }));

  server.get("/v1/machines/:machine_id", (request) => {
    const id = machineId(request.params);
    const status = deps.table.list().find((machine) => machine.machine_id === id);
    if (!status) throw new NodeError("machine_not_found", `no machine ${id} on this node`);
    return status;
  });

  server.put("/v1/machines/:machine_id", async (request) => {
    const id = machineId(request.params);
    const machine = await startMachine(deps, id, parse(StartSpec, request.body), stateKey(request.headers));
    return machine.status();
  });

  server.delete("/v1/machines/:machine_id", async (request, reply) => {
    await stopMachine(deps, machineId(request.params));
    return reply.code(204).send();
  });

  server.post("/v1/machines/:machine_id/continue", async (request) => {
    return (await continueMachine(deps, machineId(request.params))).status();
  });

  server.post("/v1/machines/:machine_id/exec", async (request, reply) => {
    const machine = deps.table.getRunning(machineId(request.params));
    const frames = await execInGuest(machine.agent, parse(ExecCall, request.body));
    sendStream(reply, frames);
    return reply;
  });

  // Files that the service itself writes. The agent writes each beside its target and renames it.
  server.put("/v1/machines/:machine_id/files", async (request) => {
    const { agent } = deps.table.getRunning(machineId(request.params));
    const { path, mode } = parse(FilesQuery, request.query);
    const query = new URLSearchParams({ path, ...(mode && { mode }) });
    const upload = { method: "PUT", path: `/v1/files?${query}`, source: request.raw, answer: Written };
    const { bytes } = await uploadToGuest(agent, upload);
    return { bytes };
  });
  registerNetworkRoutes(server, deps);
  registerGuestRoutes(server, deps);
  registerUpgrades(server, deps);
  registerSnapshotRoutes(server, deps);
  registerArchiveRoutes(server, deps);
  registerVolumeRoutes(server, deps);
}

function registerVolumeRoutes(server: FastifyInstance, { volumes }: MachineDeps): void {
  server.get("/v1/volumes", async () => ({ volumes: await volumes.list() }));

  server.put("/v1/volumes/:volume_id", async (request) => {
    const { size_gb: sizeGb } = parse(VolumeSpec, request.body);
    return await volumes.put(volumeId(request.params), sizeGb);
  });

  server.delete("/v1/volumes/:volume_id", async (request, reply) => {
    await volumes.remove(volumeId(request.params));
    return reply.code(204).send();
  });
}

function registerSnapshotRoutes(server: FastifyInstance, deps: RouteDeps): void {
  const { snapshots } = deps;
  server.get("/v1/snapshots", async () => ({ snapshots: await listSnapshots(deps) }));

  server.get("/v1/snapshots/:snapshot_id", async (request) => {
    const id = snapshotId(request.params);
    const baseline = isBaselineId(id) ? await deps.baselines.withId(id) : undefined;
    return await describeSnapshot(deps, baseline ?? (await snapshots.check(id)));
  });

  server.put("/v1/snapshots/:snapshot_id", async (request) => {
    const id = snapshotId(request.params);
    const spec = parse(SnapshotSpec, request.body);
    return await describeSnapshot(deps, await saveSnapshot(deps, id, spec, stateKey(request.headers)));
  });

  server.delete("/v1/snapshots/:snapshot_id", async (request, reply) => {
    const id = snapshotId(request.params);
    await deps.archives.end(id);
    await snapshots.remove(id);
    await deps.pool.forget(snapshots.dirOf(id));
    return reply.code(204).send();
  });
}
