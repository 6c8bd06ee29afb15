/** ClientHellos for tests: captured from this runtime's TLS client, or built by hand. */
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { type ConnectionOptions, connect } from "node:tls";

/** The first bytes that Node's TLS client sends. */
export async function captureHello(options: ConnectionOptions): Promise<Buffer> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const client = connect({ host: "127.0.0.1", port, rejectUnauthorized: false, ...options });
  client.on("error", () => {});
  const [socket] = await once(server, "connection");
  const [hello] = await once(socket, "data");
  socket.destroy();
  client.destroy();
  server.close();
  return hello;
}

const u8 = (value: number) => Buffer.from([value]);
const u16 = (value: number) => Buffer.from([value >> 8, value & 0xff]);
const vector8 = (bytes: Buffer) => Buffer.concat([u8(bytes.length), bytes]);
const vector16 = (bytes: Buffer) => Buffer.concat([u16(bytes.length), bytes]);

export const extension = (type: number, data: Buffer) => Buffer.concat([u16(type), vector16(data)]);
const hostName = (name: string, type = 0) => Buffer.concat([u8(type), vector16(Buffer.from(name, "latin1"))]);

/** The server-name extension with these names; `kind` is their type, 0 for a host name. */
export const serverNames = (names: string[], kind = 0) =>
  extension(0, vector16(Buffer.concat(names.map((name) => hostName(name, kind)))));

/** A ClientHello message. Without `extensions` it ends before their length, as from very old clients. */
export function buildHello(extensions: Buffer[] | undefined, version = 0x0303): Buffer {
  const body = Buffer.concat([
    u16(version),
    Buffer.alloc(32, 7),
    vector8(Buffer.alloc(32, 9)),
    vector16(Buffer.from([0x13, 0x01, 0xc0, 0x2f])),
    vector8(Buffer.from([0])),
    ...(extensions ? [vector16(Buffer.concat(extensions))] : []),
  ]);
  const length = Buffer.alloc(3);
  length.writeUIntBE(body.length, 0, 3);
  return Buffer.concat([u8(1), length, body]);
}

/** Splits a message into TLS records of at most `size` bytes each. */
export function toRecords(message: Buffer, size = 16_384, version = 0x0301): Buffer {
  const records: Buffer[] = [];
  for (let at = 0; at < message.length; at += size) {
    records.push(Buffer.concat([u8(22), u16(version), vector16(message.subarray(at, at + size))]));
  }
  return Buffer.concat(records);
}
