import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { Client } from "./client.ts";

const credential = {
  id: "rcr_1",
  name: "a/b",
  registry_host: "ghcr.io",
  username: "u",
  created_at: "2027-03-01T09:30:00.125Z",
  updated_at: "2027-03-01T09:30:00.125Z",
};

async function serve() {
  const seen: { call: string; body: unknown }[] = [];
  let failures = 0;
  const server = createServer(async (request, response) => {
    let text = "";
    for await (const chunk of request) text += chunk;
    seen.push({ call: `${request.method} ${request.url}`, body: text && JSON.parse(text) });
    if (failures-- > 0) return response.destroy();
    if (request.method === "DELETE") return response.writeHead(204).end();
    const answer = request.method === "GET" ? { credentials: [credential] } : credential;
    response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(answer));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const client = new Client({ url, apiKey: "viv_test", sleep: async () => {} });
  const fail = (count: number) => {
    failures = count;
  };
  return { client, seen, fail };
}

test("registries.create, list and delete send what the interface says and return its answers", async () => {
  const { client, seen } = await serve();
  const given = { name: "a/b", registry_host: "ghcr.io", username: "u", secret: "s" };
  expect(await client.registries.create(given)).toEqual(credential);
  expect(await client.registries.list()).toEqual({ credentials: [credential] });
  await client.registries.delete("a/b");
  expect(seen).toEqual([
    { call: "POST /v1/registry-credentials", body: given },
    { call: "GET /v1/registry-credentials", body: "" },
    { call: "DELETE /v1/registry-credentials/a%2Fb", body: "" },
  ]);
});

test("a credential whose answer was lost is not sent again, and a list and a delete are", async () => {
  const { client, seen, fail } = await serve();
  fail(1);
  const given = { name: "hub", registry_host: "ghcr.io", username: "u", secret: "secret-canary" };
  const error = await client.registries.create(given).catch((caught: unknown) => caught);
  expect(error).toBeInstanceOf(Error);
  expect(String(error)).not.toContain("secret-canary");
  expect(seen).toHaveLength(1);
  fail(1);
  expect((await client.registries.list()).credentials).toHaveLength(1);
  fail(1);
  await client.registries.delete("hub");
  expect(seen).toHaveLength(5);
});
