/** Routes of the network part of contract/node. */
import {
  ConnectionLease,
  NetworkSpec,
  PreviewTable,
  SessionConnections,
  WakeOutcome,
} from "@vivarium/contract/node";
import type { FastifyInstance } from "fastify";
import { z } from "zod";
import { changeNetwork } from "../machines/change-network.ts";
import type { MachineDeps } from "../machines/deps.ts";
import { NodeError } from "../node-error.ts";
import { machineId, parse } from "./params.ts";

const ReportQuery = z.object({ after: z.string().max(100).optional() });
const SessionParams = z.object({ session_id: z.string() });
const WakeParams = z.object({ wake_id: z.string() });

export function registerNetworkRoutes(
  server: FastifyInstance,
  deps: Pick<MachineDeps, "table" | "network">,
): void {
  const { network } = deps;

  server.put("/v1/machines/:machine_id/network", async (request) => {
    const spec = parse(NetworkSpec, request.body);
    await changeNetwork(deps, machineId(request.params), spec);
    return { generation: spec.generation };
  });

  server.put("/v1/previews", async (request) => {
    const table = parse(PreviewTable, request.body);
    await network.previews.replace(network.link, table);
    return { version: table.version };
  });

  server.put("/v1/connections", (request) => ({
    session_ids: network.connections.renew(parse(ConnectionLease, request.body)),
  }));

  server.put("/v1/connections/:session_id", async (request) => {
    const { session_id } = parse(SessionParams, request.params);
    const connections = parse(SessionConnections, request.body);
    if (connections.session_id !== session_id)
      throw new NodeError("invalid", "session_id: it is another session than that of the path");
    const version = await network.connections.put(connections);
    return { version, is_leased: network.connections.isLeased };
  });

  server.delete("/v1/connections/:session_id", async (request, reply) => {
    await network.connections.withdraw(parse(SessionParams, request.params).session_id);
    return reply.code(204).send();
  });

  server.get("/v1/network/report", (request) =>
    network.reporter.report(parse(ReportQuery, request.query).after),
  );

  server.get("/v1/wakes", async (_request, reply) => {
    const gone = new AbortController();
    reply.raw.once("close", () => gone.abort());
    return { wakes: await network.wakes.take(gone.signal) };
  });

  server.post("/v1/wakes/:wake_id", async (request, reply) => {
    network.wakes.answer(parse(WakeParams, request.params).wake_id, parse(WakeOutcome, request.body));
    return reply.code(204).send();
  });
}
