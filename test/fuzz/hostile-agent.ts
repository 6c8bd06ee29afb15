/** An agent that was replaced by its guest: it speaks the resync and raw HTTP/2, and answers requests with any bytes. */
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import path from "node:path";
import { readyLine } from "@vivarium/contract/guest";

const HEADER_BYTES = 9;
export const TYPE = {
  data: 0,
  headers: 1,
  reset: 3,
  settings: 4,
  push: 5,
  ping: 6,
  goaway: 7,
  window: 8,
} as const;
export const FLAG = { end: 1, ack: 1, endHeaders: 4 } as const;
const PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

export function h2Frame(type: number, flags: number, streamId: number, payload: Buffer): Buffer {
  const out = Buffer.alloc(HEADER_BYTES + payload.length);
  out.writeUIntBE(payload.length, 0, 3);
  out[3] = type;
  out[4] = flags;
  out.writeUInt32BE(streamId >>> 0, 5);
  payload.copy(out, HEADER_BYTES);
  return out;
}

export interface Hostility {
  /** Sent before READY. */
  garbage: () => Buffer;
  /** The answer to a request; the connection ends after it unless `staysOpen`. */
  answer: (streamId: number) => Buffer;
  staysOpen?: boolean;
  /** False: READY never comes, the connection ends instead. */
  answersHello?: boolean;
}

export async function startHostileAgent(hostility: Hostility) {
  const dir = await mkdtemp(path.join(tmpdir(), "hostile-"));
  const socketPath = path.join(dir, "agent.sock");
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {}).once("close", () => sockets.delete(socket));
    serve(socket, hostility);
  });
  await new Promise<void>((resolve) => server.listen(socketPath, resolve));
  return {
    socketPath,
    hostility,
    close: async () => {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
      await rm(dir, { recursive: true, force: true });
    },
  };
}

function serve(socket: Socket, hostility: Hostility): void {
  let pending: Buffer = Buffer.alloc(0);
  let speaksHttp = false;
  socket.on("data", (chunk: Buffer) => {
    pending = Buffer.concat([pending, chunk]);
    if (!speaksHttp) {
      const preface = pending.indexOf(PREFACE);
      if (preface < 0) {
        const nonce = /HELLO ([0-9a-f]{32})\n/.exec(pending.toString("latin1"))?.[1];
        if (nonce === undefined) return;
        pending = Buffer.alloc(0);
        socket.write(hostility.garbage());
        if (hostility.answersHello === false) return void socket.end();
        return void socket.write(readyLine(nonce));
      }
      speaksHttp = true;
      pending = pending.subarray(preface + PREFACE.length);
      socket.write(h2Frame(TYPE.settings, 0, 0, Buffer.alloc(0)));
    }
    pending = takeFrames(socket, pending, hostility);
  });
}

function takeFrames(socket: Socket, bytes: Buffer, { answer, staysOpen }: Hostility): Buffer {
  let rest = bytes;
  while (rest.length >= HEADER_BYTES) {
    const end = HEADER_BYTES + rest.readUIntBE(0, 3);
    if (rest.length < end) break;
    const [type, flags = 0, streamId] = [rest[3], rest[4], rest.readUInt32BE(5)];
    const payload = rest.subarray(HEADER_BYTES, end);
    rest = rest.subarray(end);
    if (type === TYPE.settings && (flags & FLAG.ack) === 0)
      socket.write(h2Frame(type, FLAG.ack, 0, Buffer.alloc(0)));
    if (type === TYPE.ping && (flags & FLAG.ack) === 0) socket.write(h2Frame(type, FLAG.ack, 0, payload));
    if (type !== TYPE.headers) continue;
    socket.write(answer(streamId));
    if (!staysOpen) socket.end();
  }
  return rest;
}
