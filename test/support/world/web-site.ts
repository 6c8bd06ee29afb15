/**
 * Answers of the world's web servers, under every name:
 *
 *   /            a greeting           /bytes/N   N bytes           /stream?every=MS   ticks without end
 *   /upload      counts the body      /echo      the request       /redirect?to=URL
 *
 * Everything else: a file of the folder for the requested name. WebSockets get their messages back.
 */
import { createReadStream, type Stats, statSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { extname, join, normalize } from "node:path";
import type { Duplex } from "node:stream";
import { WebSocketServer } from "ws";
import type { WorldLog } from "./events.ts";

const TICK_MS = 50;
const BLOCK = Buffer.alloc(64 * 1024, "x");
const KINDS: Record<string, string> = {
  ".html": "text/html",
  ".json": "application/json",
  ".js": "text/javascript",
};
const webSockets = new WebSocketServer({ noServer: true });

export interface Site {
  log: WorldLog;
  folder: string;
}

export function answer(site: Site, request: IncomingMessage, response: ServerResponse): void {
  logRequest(site, request);
  const { pathname, searchParams } = new URL(request.url ?? "/", "http://world");
  const [, what = "", argument = ""] = pathname.split("/");
  if (what === "") return void response.end(`hello from ${nameOf(request)}\n`);
  if (what === "bytes") return void sendBytes(response, Number(argument));
  if (what === "stream") return void sendTicks(response, Number(searchParams.get("every") ?? TICK_MS));
  if (what === "upload") return void countBody(request, response);
  if (what === "echo") return void sendJson(response, toJson(request));
  if (what === "redirect")
    return void response.writeHead(302, { location: searchParams.get("to") ?? "/" }).end();
  sendFile(join(site.folder, nameOf(request), normalize(pathname)), response);
}

export function upgrade(site: Site, request: IncomingMessage, socket: Duplex, head: Buffer): void {
  logRequest(site, request);
  webSockets.handleUpgrade(request, socket, head, (webSocket) => {
    webSocket.on("error", () => {});
    webSocket.on("message", (message, isBinary) => webSocket.send(message, { binary: isBinary }));
  });
}

const nameOf = ({ headers }: IncomingMessage) => (headers.host ?? "").replace(/:\d+$/, "");
const toJson = ({ method, url, rawHeaders }: IncomingMessage) => ({ method, url, headers: rawHeaders });

function logRequest({ log }: Site, request: IncomingMessage): void {
  const { localAddress: host = "?", localPort: port = 0 } = request.socket;
  log.add({
    kind: "request",
    ...{ host, port },
    method: request.method ?? "",
    url: request.url ?? "",
    headers: request.rawHeaders,
  });
}

function sendJson(response: ServerResponse, body: unknown): void {
  response.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(body));
}

function sendBytes(response: ServerResponse, wanted: number): void {
  response.writeHead(200, { "content-length": wanted });
  let left = wanted;
  const fill = () => {
    while (left > 0) {
      const block = BLOCK.subarray(0, Math.min(left, BLOCK.length));
      left -= block.length;
      if (!response.write(block)) return;
    }
    response.end();
  };
  response.on("drain", fill);
  fill();
}

function sendTicks(response: ServerResponse, everyMs: number): void {
  response.writeHead(200, { "content-type": "text/plain" });
  const timer = setInterval(() => response.write("tick\n"), everyMs);
  response.once("close", () => clearInterval(timer));
}

async function countBody(request: IncomingMessage, response: ServerResponse): Promise<void> {
  let bytes = 0;
  request.on("error", () => {});
  request.on("data", (chunk: Buffer) => {
    bytes += chunk.length;
  });
  request.once("end", () => sendJson(response, { bytes }));
}

function sendFile(path: string, response: ServerResponse): void {
  const found = fileAt(path) ?? fileAt(join(path, "index.html"));
  if (!found) return void response.writeHead(404).end("not here\n");
  const type = KINDS[extname(found.path)] ?? "application/octet-stream";
  response.writeHead(200, { "content-type": type, "content-length": found.stats.size });
  createReadStream(found.path).pipe(response);
}

function fileAt(path: string): { path: string; stats: Stats } | undefined {
  const stats = statSync(path, { throwIfNoEntry: false });
  return stats?.isFile() ? { path, stats } : undefined;
}
