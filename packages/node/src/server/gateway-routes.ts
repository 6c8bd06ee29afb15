/** Routes of contract/gateway: tables and Connections as endless streams, and the gateway's reports. */
import type { ServerResponse } from "node:http";
import { Applied, ConnectionsApplied, Flows, Pin, WakeCall } from "@vivarium/contract/gateway";
import type { FastifyInstance } from "fastify";
import type { GatewayStream } from "../network/gateway-stream.ts";
import type { NodeNetwork } from "../network/node-network.ts";
import { parse } from "./params.ts";
import { answerRefusals } from "./refusals.ts";

const HEARTBEAT_MS = 5_000;

export function registerGatewayRoutes(server: FastifyInstance, network: NodeNetwork): void {
  answerRefusals(server);

  server.get("/v1/tables", (_request, reply) => {
    reply.hijack();
    streamLines(network.link.stream, reply.raw);
  });

  server.post("/v1/applied", async (request, reply) => {
    network.link.stream.applied(parse(Applied, request.body).version);
    return reply.code(204).send();
  });

  server.get("/v1/connections", (_request, reply) => {
    reply.hijack();
    streamLines(network.connections.stream, reply.raw);
  });

  server.post("/v1/connections/applied", async (request, reply) => {
    network.connections.stream.applied(parse(ConnectionsApplied, request.body).seq);
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

function streamLines(stream: GatewayStream, response: ServerResponse): void {
  response.writeHead(200, { "content-type": "application/x-ndjson" });
  // A stream that has nothing to send yet is open all the same.
  response.flushHeaders();
  const connection = {
    send: (line: string) => response.write(`${line}\n`),
    close: () => response.destroy(),
  };
  const heartbeats = setInterval(() => response.write("\n"), HEARTBEAT_MS);
  response.on("drain", () => stream.ready(connection));
  response.on("error", () => response.destroy());
  response.on("close", () => {
    clearInterval(heartbeats);
    stream.disconnect(connection);
  });
  stream.connect(connection);
}
