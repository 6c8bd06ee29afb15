/**
 * The other side of the network's rows: HTTP on 80, a server behind a TLS greeting on 443, and a name server that gives
 * every name one address. Run inside the world's namespace; ends with its input.
 *
 * A client that has sent its greeting on 443 is answered `!`, and then sends orders as lines: `down N` for N bytes, `up
 * N` before N bytes, which are answered `!` when all have arrived. No TLS follows the greeting: the gateway reads the
 * greeting only, and cryptography would be most of the measured time.
 */
import { once } from "node:events";
import { createServer as createHttpServer } from "node:http";
import { createServer, type Socket } from "node:net";
import { PUBLIC } from "../support/world/addresses.ts";
import { listenDns } from "../support/world/dns-server.ts";
import { WorldLog } from "../support/world/events.ts";
import { ZoneReader } from "../support/world/zone.ts";

const FORGET_EVERY_MS = 1_000;
const RECORD_HEAD_BYTES = 5;
const BLOCK = Buffer.alloc(64 * 1024, "x");

async function serveNames(): Promise<void> {
  const zone = new ZoneReader();
  zone.set({ "*.example.com": { a: [PUBLIC.allowed], ttl: 600 } });
  const log = new WorldLog();
  setInterval(() => log.take(), FORGET_EVERY_MS).unref();
  await listenDns({ zone, log }, PUBLIC.resolver);
}

async function serveHttp(): Promise<void> {
  const server = createHttpServer({ noDelay: true }, (request, response) => {
    request.resume().once("end", () => response.end("taken"));
  });
  server.requestTimeout = 0;
  server.listen({ host: PUBLIC.allowed, port: 80, backlog: 1024 });
  await once(server, "listening");
}

async function serveGreeted(): Promise<void> {
  const server = createServer({ noDelay: true }, (socket) => {
    socket.on("error", () => {});
    greet(socket).catch(() => socket.destroy());
  });
  server.listen({ host: PUBLIC.allowed, port: 443, backlog: 1024 });
  await once(server, "listening");
}

async function greet(socket: Socket): Promise<void> {
  const reader = new Reader(socket);
  const head = await reader.take(RECORD_HEAD_BYTES);
  await reader.take(head.readUInt16BE(3));
  socket.write("!");
  for (;;) {
    const [what, count] = (await reader.line()).split(" ");
    if (what === "down") await sendBytes(socket, Number(count));
    else {
      await reader.skip(Number(count));
      socket.write("!");
    }
  }
}

/** The bytes of a connection, piece by piece; throws at its end. */
class Reader {
  readonly #chunks: AsyncIterator<Buffer>;
  #held: Buffer = Buffer.alloc(0);

  constructor(socket: Socket) {
    this.#chunks = (socket as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
  }

  async take(bytes: number): Promise<Buffer> {
    while (this.#held.length < bytes) this.#held = Buffer.concat([this.#held, await this.#next()]);
    return this.#cut(bytes);
  }

  async line(): Promise<string> {
    let end = this.#held.indexOf("\n");
    while (end === -1) {
      this.#held = Buffer.concat([this.#held, await this.#next()]);
      end = this.#held.indexOf("\n");
    }
    return this.#cut(end + 1).toString("latin1", 0, end);
  }

  async skip(bytes: number): Promise<void> {
    let left = bytes - this.#cut(Math.min(bytes, this.#held.length)).length;
    while (left > 0) {
      this.#held = await this.#next();
      left -= this.#cut(Math.min(left, this.#held.length)).length;
    }
  }

  #cut(bytes: number): Buffer {
    const taken = this.#held.subarray(0, bytes);
    this.#held = this.#held.subarray(bytes);
    return taken;
  }

  async #next(): Promise<Buffer> {
    const { value, done } = await this.#chunks.next();
    if (done) throw new Error("the connection has ended");
    return value;
  }
}

async function sendBytes(socket: Socket, bytes: number): Promise<void> {
  for (let left = bytes; left > 0; left -= BLOCK.length)
    if (!socket.write(BLOCK.subarray(0, left))) await once(socket, "drain");
}

await serveNames();
await serveHttp();
await serveGreeted();
process.stdin.resume().once("end", () => process.exit(0));
process.stdout.write("listening\n");
