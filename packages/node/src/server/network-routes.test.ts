import { createLog } from "@vivarium/kit/log";
import { type FastifyInstance, fastify } from "fastify";
import { beforeEach, expect, it } from "vitest";
import { createNetwork } from "../app.ts";
import { MachineTable } from "../machines/table.ts";
import type { NodeNetwork } from "../network/node-network.ts";
import { registerNetworkRoutes } from "./network-routes.ts";
import { refusalOf } from "./refusals.ts";

const log = createLog("test", "silent");
const SPEC = { generation: 1, egress: { mode: "deny", allow: [] }, exposed: [] };
let network: NodeNetwork;
let server: FastifyInstance;

beforeEach(() => {
  network = createNetwork({
    host: { never: [], resolvers: ["192.0.2.53"], systemResolvers: [] },
    closeSmtp: false,
    expectGatewayMs: 0,
    keep: async () => {},
    log,
  });
  server = fastify();
  server.setErrorHandler((error, _request, reply) => {
    const { status, body } = refusalOf(error, log);
    return reply.code(status).send(body);
  });
  registerNetworkRoutes(server, { table: new MachineTable({ memoryKillOf: () => undefined }), network });
});

async function call(method: "GET" | "PUT" | "POST", url: string, payload?: object) {
  const answer = await server.inject({ method, url, ...(payload && { payload }) });
  return { status: answer.statusCode, body: answer.body === "" ? undefined : answer.json() };
}

/** A gateway that confirms everything. */
function connectGateway(): void {
  network.link.stream.connect({
    send: (line) => {
      setImmediate(() => network.link.stream.applied(JSON.parse(line).version));
      return true;
    },
    close: () => {},
  });
}

it("refuses the network of an unknown machine, and a malformed one", async () => {
  const url = "/v1/machines/aaaaaaaaaaaaaaaaaaaaa-1/network";
  expect(await call("PUT", url, SPEC)).toMatchObject({ status: 404, body: { code: "machine_not_found" } });
  expect(await call("PUT", url, { ...SPEC, exposed: [0] })).toMatchObject({ status: 400 });
});

it("accepts previews once the gateway has them, and no older ones", async () => {
  connectGateway();
  expect(await call("PUT", "/v1/previews", { version: 3, routes: [] })).toEqual({
    status: 200,
    body: { version: 3 },
  });
  expect(await call("PUT", "/v1/previews", { version: 3, routes: [] })).toMatchObject({ status: 200 });
  expect(await call("PUT", "/v1/previews", { version: 2, routes: [] })).toMatchObject({
    status: 409,
    body: { code: "network_conflict" },
  });
  expect(network.previews.version).toBe(3);
});

it("carries a wake request from the gateway to control, and the outcome back", async () => {
  const asked = network.wakes.ask("s1");
  const { body } = await call("GET", "/v1/wakes");
  expect(body.wakes).toMatchObject([{ session_id: "s1" }]);
  const outcome = { result: "refused", status: 410 };
  expect(await call("POST", `/v1/wakes/${body.wakes[0].wake_id}`, outcome)).toMatchObject({ status: 204 });
  expect(await asked).toEqual(outcome);
  expect(await call("POST", `/v1/wakes/${body.wakes[0].wake_id}`, outcome)).toMatchObject({ status: 404 });
});

it("reports what was logged since the cursor", async () => {
  network.log.add([], 4);
  network.log.markActive(["s1"]);
  const first = await call("GET", "/v1/network/report");
  expect(first.body).toMatchObject({ counters: [], entries: [], lost: 4, active_sessions: ["s1"] });
  const next = await call("GET", `/v1/network/report?after=${first.body.cursor}`);
  expect(next.body).toMatchObject({ lost: 0, active_sessions: [] });
});
