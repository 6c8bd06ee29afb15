/** Frames DNS messages over TCP, where two bytes of length precede each message (RFC 1035 4.2.2). */
import type { Socket } from "node:net";

export function withLength(message: Buffer): Buffer {
  const length = Buffer.alloc(2);
  length.writeUInt16BE(message.length);
  return Buffer.concat([length, message]);
}

/** Yields messages until the peer ends its side or announces more than `maxBytes`. The socket stays open. */
export async function* readMessages(socket: Socket, maxBytes: number): AsyncGenerator<Buffer> {
  let received = Buffer.alloc(0);
  for await (const chunk of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    received = Buffer.concat([received, chunk]);
    while (received.length >= 2) {
      const length = received.readUInt16BE(0);
      if (length > maxBytes) return;
      if (received.length < 2 + length) break;
      yield received.subarray(2, 2 + length);
      received = received.subarray(2 + length);
    }
  }
}
