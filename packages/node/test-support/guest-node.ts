/** Serves the node's routes into a guest on a real socket, in front of an agent that the test scripts. */
import { mkdtemp, rm } from "node:fs/promises";
import type { Http2ServerRequest, Http2ServerResponse } from "node:http2";
import { tmpdir } from "node:os";
import path from "node:path";
import { createLog } from "@vivarium/kit/log";
import { fastify } from "fastify";
import { AgentClient } from "../src/guest/client.ts";
import { NodeError } from "../src/node-error.ts";
import { registerGuestRoutes } from "../src/server/guest-routes.ts";
import { refusalOf } from "../src/server/refusals.ts";
import { registerUpgrades } from "../src/server/upgrades.ts";
import { startScriptedAgent } from "./scripted-agent.ts";

export const MACHINE = "aaaaaaaaaaaaaaaaaaaaa-1";
export const HELD_MACHINE = "bbbbbbbbbbbbbbbbbbbbb-1";

export interface GuestNode {
  socketPath: string;
  /** How the agent handles the next requests. */
  handle: (request: Http2ServerRequest, response: Http2ServerResponse) => void;
  /** Requests that reached the agent. */
  asked: { method: string; target: string }[];
  client: AgentClient;
  close(): Promise<void>;
}

export async function startGuestNode(): Promise<GuestNode> {
  const dir = await mkdtemp(path.join(tmpdir(), "guest-node-"));
  const node: Pick<GuestNode, "handle" | "asked"> = {
    handle: (_, response) => response.end("{}"),
    asked: [],
  };
  const agent = await startScriptedAgent({
    handle: (request, response) => {
      node.asked.push({ method: request.method, target: request.url });
      node.handle(request, response);
    },
  });
  const client = new AgentClient(agent.socketPath);
  const table = {
    getRunning: (id: string) => {
      if (id === MACHINE) return { agent: client };
      if (id === HELD_MACHINE) throw new NodeError("machine_held", "the machine stands still");
      throw new NodeError("machine_not_found", `no machine ${id} on this node`);
    },
  };
  const log = createLog("test", "silent");
  const server = fastify({ forceCloseConnections: true });
  server.setErrorHandler((error, _request, reply) => {
    const { status, body } = refusalOf(error, log);
    return reply.code(status).send(body);
  });
  registerGuestRoutes(server, { table });
  registerUpgrades(server, { table, log });
  const socketPath = path.join(dir, "node.sock");
  await server.listen({ path: socketPath });
  return Object.assign(node, {
    socketPath,
    client,
    close: async () => {
      client.close();
      await server.close();
      await agent.close();
      await rm(dir, { recursive: true, force: true });
    },
  });
}
