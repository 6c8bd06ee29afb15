/** An HTTP server for tests with a given handler, and a client connected to it. `waits` records the client's pauses. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";
import { Client, type ClientOptions } from "../src/client.ts";

export type Handler = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>;

export async function serve(handler: Handler, options: ClientOptions = {}) {
  const server: Server = createServer((request, response) => void handler(request, response));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  onTestFinished(close);
  const waits: number[] = [];
  const client = new Client({
    url,
    apiKey: "viv_test",
    sleep: async (ms) => void waits.push(ms),
    ...options,
  });
  return { server, client, session: client.session("s1"), waits, url, close };
}

export async function bodyOf(request: IncomingMessage): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(request as AsyncIterable<Buffer>));
}

export function json(
  response: ServerResponse,
  body: unknown,
  status = 200,
  headers: Record<string, string> = {},
): void {
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
}
