/** Routes of contract/gateway: the tables as an endless stream, and the gateway's reports. */
import type { ServerResponse } from "node:http";
import { Applied, Flows, Pin, WakeCall } from "@vivarium/contract/gateway";
import type { FastifyInstance } from "fastify";
import type { NodeNetwork } from "../network/node-network.ts";
import { parse } from "./params.ts";
import { answerRefusals } from "./refusals.ts";

const HEARTBEAT_MS = 5_000;

export function registerGatewayRoutes(server: FastifyInstance, network: NodeNetwork): void {
  answerRefusals(server);

  server.get("/v1/tables", (_request, reply) => {
    reply.hijack();
    reply.raw.writeHead(200, { "content-type": "application/x-ndjson" });
    streamTables(network, reply.raw);
  });

  server.post("/v1/applied", async (request, reply) => {
    network.link.applied(parse(Applied, request.body).version);
    return reply.code(204).send();
  });

  server.post("/v1/pins", async (request, reply) => {
    await network.networks.pin(parse(Pin, request.body));
    return reply.code(204).send();
  });

  server.post("/v1/wakes", (request) => network.wakes.ask(parse(WakeCall, request.body).session_id));

  server.post("/v1/flows", async (request, reply) => {
    const { entries, lost, active_sessions } = parse(Flows, request.body);
    network.log.add(entries, lost);
    network.log.markActive(active_sessions);
    return reply.code(204).send();
  });
}

function streamTables({ link }: NodeNetwork, response: ServerResponse): void {
  const connection = {
    send: (line: string) => response.write(`${line}\n`),
    close: () => response.destroy(),
  };
  const heartbeats = setInterval(() => response.write("\n"), HEARTBEAT_MS);
  response.on("drain", () => link.ready(connection));
  response.on("error", () => response.destroy());
  response.on("close", () => {
    clearInterval(heartbeats);
    link.disconnect(connection);
  });
  link.connect(connection);
}
