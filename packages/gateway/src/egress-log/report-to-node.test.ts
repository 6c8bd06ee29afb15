import { type EgressEntry, Flows } from "@vivarium/contract/gateway";
import { createLog } from "@vivarium/kit/log";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type BoundWorld, HOST, SECRET, startBoundWorld } from "../../test-support/bound-world.ts";
import { until } from "../../test-support/in-time.ts";
import { NodeClient } from "../tables/node-client.ts";
import { reportFlows } from "./report-to-node.ts";
import { lineOf, type RequestEntry } from "./request-lines.ts";

let world: BoundWorld;
beforeAll(async () => {
  world = await startBoundWorld("127.31.55");
});
afterAll(() => world.close());

test("requests through Connections reach the node as lines of the machine that made them", async () => {
  await world.bind({ paths: ["/v1/*"], methods: ["GET"] });
  const socketPath = String(world.node.server.address());
  const stopping = new AbortController();
  const reporting = reportFlows(
    {
      node: new NodeClient(socketPath),
      egressLog: world.egressLog,
      log: createLog("gateway-test", "silent"),
    },
    stopping.signal,
  );
  for (const path of ["/v1/items?page=1", "/v1/items?page=2", "/v2/items"]) await world.ask(path);
  world.origin.answer = (_request, response) => void response.end(SECRET);
  await world.ask("/v1/echo");
  const lines = () =>
    world.node.flows.flatMap(({ entries }) => entries).filter(({ kind }) => kind === "connection");
  // The answer that carried the credential has a line beside that of its request.
  const count = () => lines().reduce((sum, line) => sum + (line.count ?? 1), 0);
  await until(() => count() >= 5);
  stopping.abort();
  await reporting;
  const used = lines().filter((line) => line.reason === "connection_used" && line.path !== "/v1/echo");
  expect(used.reduce((sum, line) => sum + (line.count ?? 1), 0)).toBe(2);
  const common = { machine_id: "mch_1", kind: "connection", host: HOST, port: 443, connection: "api" };
  const request = { ...common, method: "GET", bytes_out: 0 };
  for (const line of used)
    expect(line).toMatchObject({
      ...{ ...request, path: "/v1/items", verdict: "allowed", rule: 0, status: 200, is_sent: true },
    });
  expect(lines().filter(({ verdict }) => verdict === "denied")).toMatchObject([
    { ...request, path: "/v2/items", reason: "connection_rule_denied", status: 403, is_sent: false },
  ]);
  expect(lines().filter(({ reason }) => reason === "connection_reflected")).toMatchObject([
    { ...request, path: "/v1/echo", verdict: "allowed" },
  ]);
  for (const flows of world.node.flows) Flows.parse(flows);
  expect(JSON.stringify(world.node.flows)).not.toContain(SECRET.slice(0, 12));
});

test.each<[RequestEntry["event"], RequestEntry["code"], EgressEntry["verdict"], EgressEntry["reason"]]>([
  ["used", undefined, "allowed", "connection_used"],
  ["denied", "connection_revoked", "denied", "connection_revoked"],
  ["failed", undefined, "allowed", "connection_upstream"],
  ["failed", "connection_upstream", "allowed", "connection_upstream"],
  ["reflected", undefined, "allowed", "connection_reflected"],
])("a request that was %s with the code %s is %s because of %s", (event, code, verdict, reason) => {
  const entry: RequestEntry = {
    ...{ machine_id: "mch_1", session_id: "ses_1", at: "2026-01-01T00:00:00.000Z", connection: "api" },
    ...{ host: HOST, event, method: "GET", path: "/", bytes_out: 1, bytes_in: 2 },
    ...(code && { code }),
  };
  expect(lineOf(entry)).toEqual({
    ...{ machine_id: "mch_1", at: entry.at, kind: "connection", host: HOST, port: 443, connection: "api" },
    ...{ verdict, reason, method: "GET", path: "/", bytes_out: 1, bytes_in: 2 },
  });
});
