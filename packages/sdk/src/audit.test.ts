/** `client.audit`: pages, steps and lines. */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterEach, expect, test } from "vitest";
import { Client } from "./client.ts";

const closing: (() => void)[] = [];
afterEach(() => {
  for (const close of closing.splice(0)) close();
});

async function serve(answer: (request: IncomingMessage, response: ServerResponse) => void) {
  const urls: string[] = [];
  const server = createServer((request, response) => {
    urls.push(request.url ?? "");
    answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closing.push(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { client: new Client({ url, apiKey: "viv_x", retries: 0 }), urls };
}

const json = (response: ServerResponse, body: object) => {
  response.setHeader("content-type", "application/json");
  response.end(JSON.stringify(body));
};
const at = "2027-01-01T00:00:00.000Z";
const head = { seq: 10, hash: "a".repeat(64), at };
const anchor = { seq: 4, hash: "b".repeat(64), at };

test("list goes through the pages with its filter", async () => {
  const { client, urls } = await serve((request, response) =>
    json(response, request.url?.includes("cursor") ? { entries: [2] } : { entries: [1], next_cursor: "c" }),
  );
  const seen: unknown[] = [];
  for await (const entry of client.audit.list({ since: new Date(at), actor: "key_1" })) seen.push(entry);
  expect(seen).toEqual([1, 2]);
  const since = encodeURIComponent(at);
  expect(urls).toEqual([
    `/v1/audit?actor=key_1&since=${since}`,
    `/v1/audit?actor=key_1&since=${since}&cursor=c`,
  ]);
});

test("verify sums up the steps, reports its progress, and sends the known head once", async () => {
  const finding = { kind: "entry_removed", message: "m", seq: 5 };
  const steps = [
    {
      findings: [finding],
      more_findings: 3,
      checked: 6,
      waiting: 0,
      before_chain: 1,
      anchor,
      head,
      next_cursor: "c",
    },
    { findings: [], checked: 5, waiting: 2, before_chain: 0, anchor, head },
  ];
  const { client, urls } = await serve((_request, response) => json(response, steps.shift() ?? {}));
  const progress: unknown[] = [];
  const verdict = await client.audit.verify({
    known: { seq: 9, hash: "c" },
    onProgress: (one) => progress.push(one),
  });
  expect(verdict).toEqual({
    ...{
      ok: false,
      findings: [finding],
      more_findings: 3,
      checked: 11,
      waiting: 2,
      before_chain: 1,
      anchor,
      head,
    },
  });
  expect(progress).toEqual([
    { checked: 6, total: 12 },
    { checked: 11, total: 12 },
  ]);
  expect(urls).toEqual(["/v1/audit/verify?known=9.c", "/v1/audit/verify?cursor=c"]);
});

test("an export ends with its head; one that breaks off rejects", async () => {
  const lines = [
    { type: "link", link: { seq: 5 }, entry: null },
    { type: "head", head },
  ];
  const text = lines.map((line) => `${JSON.stringify(line)}\n`);
  const { client } = await serve((request, response) =>
    response.end(request.url?.includes("after") ? text[0] : text.join("")),
  );
  const seen: unknown[] = [];
  for await (const line of client.audit.export()) seen.push(line);
  expect(seen).toEqual(lines);
  await expect(async () => {
    for await (const line of client.audit.export({ after: 4 })) seen.push(line);
  }).rejects.toMatchObject({ code: "connection_failed", retryable: true });
});
