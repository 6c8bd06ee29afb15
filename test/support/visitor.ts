/** Requests previews as a browser or a program does, with raw bytes where that matters. */
import { type IncomingHttpHeaders, request } from "node:http";
import { connect, type Socket } from "node:net";
import { WebSocket } from "ws";

export interface Page {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
}

export const NAVIGATION = { "sec-fetch-mode": "navigate", accept: "text/html" };

/** Requests a URL. The preview's host name goes into the Host header; the connection goes to this host. */
export function visit(
  url: string,
  options: { method?: string; headers?: Record<string, string | string[]>; body?: Buffer | string } = {},
): Promise<Page> {
  const { host, port, pathname, search } = new URL(url);
  return new Promise((resolve, reject) => {
    const asked = request(
      {
        ...{
          host: "127.0.0.1",
          port,
          path: pathname + search,
          method: options.method ?? "GET",
          agent: false,
        },
        headers: { host, ...options.headers },
      },
      async (response) => {
        const chunks: Buffer[] = [];
        try {
          for await (const chunk of response) chunks.push(chunk as Buffer);
        } catch (error) {
          reject(error);
        }
        const { statusCode: status = 0, headers } = response;
        resolve({ status, headers, body: Buffer.concat(chunks).toString() });
      },
    );
    asked.once("error", reject);
    asked.end(options.body);
  });
}

/** Sends raw bytes; returns all that arrives until the server closes or is silent for `quietMs`. */
export function sendRaw(port: number, bytes: string | Buffer, quietMs = 10_000): Promise<string> {
  const socket: Socket = connect(port, "127.0.0.1");
  let got = "";
  return new Promise((resolve) => {
    let timer = setTimeout(() => socket.destroy(), quietMs);
    socket.on("data", (chunk) => {
      got += chunk.toString("latin1");
      clearTimeout(timer);
      timer = setTimeout(() => socket.destroy(), quietMs);
    });
    socket.on("error", () => {});
    socket.once("close", () => {
      clearTimeout(timer);
      resolve(got);
    });
    socket.write(bytes);
  });
}

/** Opens a WebSocket; resolves to it, or to the status of the refusal. */
export function openSocket(url: string, headers: Record<string, string> = {}): Promise<WebSocket | number> {
  const { host, port, pathname, search } = new URL(url);
  const socket = new WebSocket(`ws://127.0.0.1:${port}${pathname}${search}`, {
    headers: { host, ...headers },
  });
  return new Promise((resolve, reject) => {
    socket.once("open", () => resolve(socket));
    socket.once("unexpected-response", (_request, response) => {
      response.resume();
      resolve(response.statusCode ?? 0);
    });
    socket.once("error", reject);
  });
}
