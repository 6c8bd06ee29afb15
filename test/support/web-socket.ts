/** A WebSocket client of terminals and tunnels, message by message. */
import type { IncomingMessage } from "node:http";
import { WebSocket } from "ws";
import { eventually } from "./eventually.ts";
import { service } from "./http.ts";

interface Refusal {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: { code: string; error: string };
}

async function readRefusal(response: IncomingMessage): Promise<Refusal> {
  const chunks: Buffer[] = [];
  for await (const chunk of response) chunks.push(chunk as Buffer);
  const body = JSON.parse(Buffer.concat(chunks).toString());
  return { status: response.statusCode ?? 0, headers: response.headers, body };
}

export class Socket {
  readonly webSocket: WebSocket;
  readonly messages: Buffer[] = [];
  readonly closed: Promise<number>;

  constructor(path: string, apiKey = service.apiKey, url = service.url) {
    this.webSocket = new WebSocket(url.replace(/^http/, "ws") + path, {
      headers: { authorization: `Bearer ${apiKey}` },
    });
    this.webSocket.on("message", (message: Buffer) => this.messages.push(message));
    this.webSocket.on("error", () => {});
    this.closed = new Promise((resolve) => this.webSocket.once("close", resolve));
  }

  /** Resolves once the socket is open; rejects with the Refusal. */
  opened(): Promise<this> {
    return new Promise((resolve, reject) => {
      this.webSocket.once("open", () => resolve(this));
      this.webSocket.once("unexpected-response", (_request, response) => {
        readRefusal(response).then(reject, reject);
      });
    });
  }

  async close(): Promise<void> {
    this.webSocket.close();
    await this.closed;
  }
}

export class Terminal extends Socket {
  type(text: string): void {
    this.send(0x01, Buffer.from(text));
  }

  resize(rows: number, cols: number): void {
    const size = Buffer.alloc(4);
    size.writeUInt16BE(rows, 0);
    size.writeUInt16BE(cols, 2);
    this.send(0x02, size);
  }

  signal(number: number): void {
    this.send(0x03, Buffer.of(number));
  }

  send(type: number, payload: Buffer = Buffer.alloc(0)): void {
    this.webSocket.send(Buffer.concat([Buffer.of(type), payload]));
  }

  get text(): string {
    const data = this.messages.filter((message) => message[0] === 0x01);
    return Buffer.concat(data.map((message) => message.subarray(1))).toString();
  }

  get exitCode(): number | undefined {
    const last = this.messages.at(-1);
    return last?.[0] === 0x05 ? last.readInt32BE(1) : undefined;
  }

  async shows(pattern: RegExp, withinMs = 60_000): Promise<string> {
    return await eventually(() => {
      const found = pattern.exec(this.text)?.[0];
      if (found === undefined)
        throw new Error(`${pattern} is not in ${JSON.stringify(this.text.slice(-500))}`);
      return found;
    }, withinMs);
  }
}

/** `at`: another service than the one that tests share. */
export async function openTerminal(
  sessionId: string,
  query = "",
  at: { url: string; apiKey: string } = service,
): Promise<Terminal> {
  return await new Terminal(`/v1/sessions/${sessionId}/pty${query}`, at.apiKey, at.url).opened();
}
