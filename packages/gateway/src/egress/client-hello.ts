/**
 * Reads the server name out of a TLS ClientHello (RFC 8446 4.1.2, RFC 6066 3). A message that a server could read
 * differently is refused. The bytes are sent to the server unchanged.
 */
import { isIPv4 } from "node:net";
import { normaliseName } from "../policy/names.ts";

const RECORD_HEADER_BYTES = 5;
const MESSAGE_HEADER_BYTES = 4;
const MAX_RECORD_BYTES = 16_384;
const MAX_HELLO_BYTES = 16_384;
const MAX_RECORDS = 64;
const HANDSHAKE_RECORD = 22;
const CLIENT_HELLO = 1;
const SERVER_NAME = 0;

export type HelloReason = "no_name" | "malformed";
export type Hello =
  | { state: "more" }
  | { state: "named"; name: string }
  | { state: "refused"; reason: HelloReason };

class Malformed extends Error {}

/** Reads all bytes of a connection so far; `more`: the ClientHello is incomplete. */
export function readHello(received: Buffer): Hello {
  try {
    const message = joinRecords(received);
    if (message === undefined) return { state: "more" };
    const name = readServerName(message);
    return name === undefined ? { state: "refused", reason: "no_name" } : { state: "named", name };
  } catch (error) {
    if (error instanceof Malformed) return { state: "refused", reason: "malformed" };
    throw error;
  }
}

/** The ClientHello's body; undefined while it is incomplete. Bytes behind it in its last record are refused. */
function joinRecords(received: Buffer): Buffer | undefined {
  const fragments: Buffer[] = [];
  let length = 0;
  let offset = 0;
  for (let records = 0; records < MAX_RECORDS; records += 1) {
    if (received.length > offset) expect(received[offset] === HANDSHAKE_RECORD);
    if (received.length > offset + 1) expect(received[offset + 1] === 3);
    if (received.length < offset + RECORD_HEADER_BYTES) return undefined;
    const size = received.readUInt16BE(offset + 3);
    expect(size > 0 && size <= MAX_RECORD_BYTES);
    offset += RECORD_HEADER_BYTES;
    const fragment = received.subarray(offset, offset + size);
    fragments.push(fragment);
    length += fragment.length;
    offset += size;
    const whole = wholeLength(fragments);
    expect(length <= whole);
    if (length === whole) return Buffer.concat(fragments, length).subarray(MESSAGE_HEADER_BYTES);
    if (fragment.length < size) return undefined;
  }
  throw new Malformed();
}

/** Bytes of the whole message, from its header; infinite until the header has arrived. */
function wholeLength(fragments: Buffer[]): number {
  const head = Buffer.concat(fragments.map((fragment) => fragment.subarray(0, MESSAGE_HEADER_BYTES)));
  expect((head[0] ?? CLIENT_HELLO) === CLIENT_HELLO);
  if (head.length < MESSAGE_HEADER_BYTES) return Number.POSITIVE_INFINITY;
  const whole = MESSAGE_HEADER_BYTES + head.readUIntBE(1, 3);
  expect(whole <= MAX_HELLO_BYTES);
  return whole;
}

function readServerName(hello: Buffer): string | undefined {
  const reader = new Reader(hello);
  reader.take(2 + 32);
  expect(reader.vector(1).length <= 32);
  const ciphers = reader.vector(2);
  expect(ciphers.length >= 2 && ciphers.length % 2 === 0);
  expect(reader.vector(1).length >= 1);
  if (reader.isAtEnd()) return undefined;
  const extensions = new Reader(reader.vector(2));
  expect(reader.isAtEnd());
  const seen = new Set<number>();
  let names: Buffer | undefined;
  while (!extensions.isAtEnd()) {
    const type = extensions.number(2);
    expect(!seen.has(type));
    seen.add(type);
    const data = extensions.vector(2);
    if (type === SERVER_NAME) names = data;
  }
  return names === undefined ? undefined : readHostName(names);
}

/** Reads the list of the extension, which must hold exactly one name, of type host_name. */
function readHostName(extension: Buffer): string | undefined {
  const outer = new Reader(extension);
  const list = new Reader(outer.vector(2));
  expect(outer.isAtEnd());
  expect(list.number(1) === 0);
  const text = list.vector(2).toString("latin1");
  expect(list.isAtEnd());
  // A server name is never an address (RFC 6066).
  if (isIPv4(text) || text.includes(":")) return undefined;
  const name = normaliseName(text);
  expect(name !== null);
  return name ?? undefined;
}

class Reader {
  readonly #bytes: Buffer;
  #offset = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  isAtEnd(): boolean {
    return this.#offset === this.#bytes.length;
  }

  take(length: number): Buffer {
    expect(this.#offset + length <= this.#bytes.length);
    this.#offset += length;
    return this.#bytes.subarray(this.#offset - length, this.#offset);
  }

  number(size: 1 | 2): number {
    return this.take(size).readUIntBE(0, size);
  }

  /** Reads a length of `size` bytes, and that many bytes. */
  vector(size: 1 | 2): Buffer {
    return this.take(this.number(size));
  }
}

function expect(holds: boolean): void {
  if (!holds) throw new Malformed();
}
