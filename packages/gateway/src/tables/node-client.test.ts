import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import path from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { expect, test } from "vitest";
import { until } from "../../test-support/in-time.ts";
import { NodeClient } from "./node-client.ts";

test("has so many connections for pins at most, and none of them keeps another call waiting", async () => {
  const folder = await mkdtemp(path.join(tmpdir(), "node-client-"));
  const socketPath = path.join(folder, "node.sock");
  let held = 0;
  const server = createServer((request, response) => {
    if (request.url === "/v1/pins") held++;
    else response.writeHead(204).end();
  });
  server.listen(socketPath);
  await once(server, "listening");
  const client = new NodeClient(socketPath);
  const pins = Promise.allSettled(Array.from({ length: 300 }, () => client.post("/v1/pins", {}, 60_000)));
  await until(() => held === 256);
  await sleep(100);
  expect(await client.post("/v1/applied", {})).toMatchObject({ status: 204 });
  expect(held).toBe(256);
  client.close();
  server.close();
  server.closeAllConnections();
  await pins;
  await rm(folder, { recursive: true });
});
