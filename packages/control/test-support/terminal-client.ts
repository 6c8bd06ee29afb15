/** A WebSocket client over a real connection. */
import { request } from "node:http";
import type { AddressInfo } from "node:net";
import { WebSocket } from "ws";
import { type Control, eventually } from "./control.ts";

export interface Refused {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: { code: string; error: string };
}

export class Client {
  readonly webSocket: WebSocket;
  readonly messages: Buffer[] = [];
  readonly closed: Promise<number>;
  responseHeaders: Record<string, string | string[] | undefined> = {};

  constructor(
    url: string,
    key: string,
    options: { headers?: Record<string, string>; protocols?: string[] } = {},
  ) {
    this.webSocket = new WebSocket(url, options.protocols ?? [], {
      headers: { authorization: `Bearer ${key}`, ...options.headers },
    });
    this.closed = new Promise((resolve) => this.webSocket.once("close", resolve));
    this.webSocket.on("message", (message: Buffer) => this.messages.push(message));
    this.webSocket.on("upgrade", (response) => {
      this.responseHeaders = response.headers;
    });
    this.webSocket.on("error", () => {});
  }

  opened(): Promise<this> {
    return new Promise((resolve, reject) => {
      this.webSocket.once("open", () => resolve(this));
      this.webSocket.once("unexpected-response", (_request, response) =>
        reject(new Error(`refused with ${response.statusCode}`)),
      );
    });
  }

  send(...bytes: (number | string)[]): void {
    this.webSocket.send(
      Buffer.concat(bytes.map((part) => (typeof part === "number" ? Buffer.of(part) : Buffer.from(part)))),
    );
  }

  /** All data received, as text. */
  get text(): string {
    return Buffer.concat(this.messages.filter((m) => m[0] === 1).map((m) => m.subarray(1))).toString();
  }
}

export function addressOf(control: Control): string {
  return `127.0.0.1:${(control.app.server.server.address() as AddressInfo).port}`;
}

export function connect(
  control: Control,
  path: string,
  options: { key?: string; headers?: Record<string, string>; protocols?: string[] } = {},
): Client {
  return new Client(`ws://${addressOf(control)}${path}`, options.key ?? control.key, options);
}

export async function openPty(control: Control, id: string, query = ""): Promise<Client> {
  return await connect(control, `/v1/sessions/${id}/pty${query}`).opened();
}

/** The machine's end of the session's latest stream. */
export async function streamOf(control: Control, id: string) {
  return await eventually(() => {
    const found = control.node.streams.findLast(({ machineId }) => machineId.startsWith(id));
    if (!found) throw new Error("no stream has opened yet");
    return found;
  });
}

/** Sends an upgrade that is refused, and returns the HTTP answer. */
export function refused(
  control: Control,
  path: string,
  {
    key = control.key,
    headers = {},
  }: { key?: string | null; headers?: Record<string, string | undefined> } = {},
): Promise<Refused> {
  const all: Record<string, string | undefined> = {
    connection: "Upgrade",
    upgrade: "websocket",
    "sec-websocket-version": "13",
    "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
    ...(key !== null && { authorization: `Bearer ${key}` }),
    ...headers,
  };
  const sent = Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined));
  return new Promise((resolve, reject) => {
    const call = request(`http://${addressOf(control)}${path}`, {
      headers: sent as Record<string, string>,
      agent: false,
    });
    call.once("upgrade", (_response, socket) => {
      socket.destroy();
      reject(new Error("the connection was upgraded"));
    });
    call.once("response", async (response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of response) chunks.push(chunk as Buffer);
      const body = JSON.parse(Buffer.concat(chunks).toString());
      resolve({ status: response.statusCode ?? 0, headers: response.headers, body });
    });
    call.once("error", reject);
    call.end();
  });
}
