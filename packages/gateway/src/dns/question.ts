/** Reads and writes DNS questions. A guest's message must hold exactly one question, uncompressed, and at most EDNS. */

export const TYPE = { A: 1, AAAA: 28, OPT: 41, SVCB: 64, HTTPS: 65, IXFR: 251, AXFR: 252, ANY: 255 } as const;

const HEADER_BYTES = 12;
const CLASS_IN = 1;
const MAX_WIRE_NAME = 255;
const FLAG = { response: 0x8000, opcode: 0x7800, truncated: 0x0200, recursion: 0x0100 } as const;

export interface Question {
  id: number;
  isRecursionDesired: boolean;
  /** The asked name: labels in lower case, joined by dots; "" for the root. */
  name: string;
  type: number;
  /** The question section's bytes as received: a reply repeats them, with their upper and lower case. */
  raw: Buffer;
  /** The largest answer over UDP that the client accepts, in bytes. */
  udpLimit: number;
}

/** The largest answer over UDP without EDNS. */
const PLAIN_UDP_BYTES = 512;
/** The largest answer over UDP: longer datagrams may be fragmented on the way. */
const MAX_UDP_BYTES = 1232;

/** Null for a message that is not such a question. */
export function readQuestion(message: Buffer): Question | null {
  if (message.length < HEADER_BYTES + 5) return null;
  const flags = message.readUInt16BE(2);
  if (flags & (FLAG.response | FLAG.opcode | FLAG.truncated)) return null;
  const counts = [4, 6, 8, 10].map((offset) => message.readUInt16BE(offset));
  const [questions, answers, authorities, additionals = 0] = counts;
  if (questions !== 1 || answers !== 0 || authorities !== 0 || additionals > 1) return null;
  const name = readName(message, HEADER_BYTES);
  if (name === null || name.end + 4 > message.length) return null;
  const end = name.end + 4;
  if (message.readUInt16BE(name.end + 2) !== CLASS_IN) return null;
  const udpLimit = additionals === 0 ? PLAIN_UDP_BYTES : readUdpLimit(message, end);
  if (udpLimit === null || (additionals === 0 && end !== message.length)) return null;
  return {
    id: message.readUInt16BE(0),
    isRecursionDesired: (flags & FLAG.recursion) !== 0,
    name: name.text,
    type: message.readUInt16BE(name.end),
    raw: Buffer.from(message.subarray(HEADER_BYTES, end)),
    udpLimit,
  };
}

/** Reads a name of visible ASCII. A dot inside a label is refused: the name would look like another one. */
function readName(message: Buffer, start: number): { text: string; end: number } | null {
  const labels: string[] = [];
  let offset = start;
  for (;;) {
    const length = message[offset];
    if (length === undefined || length > 63) return null;
    offset += 1;
    if (length === 0) break;
    const label = message.toString("latin1", offset, offset + length);
    if (label.length !== length || !/^[!-\-/-~]+$/.test(label)) return null;
    labels.push(label.toLowerCase());
    offset += length;
    if (offset - start >= MAX_WIRE_NAME) return null;
  }
  return { text: labels.join("."), end: offset };
}

/** Reads the EDNS record, which must be the end of the message. */
function readUdpLimit(message: Buffer, start: number): number | null {
  if (message.length < start + 11 || message[start] !== 0) return null;
  if (message.readUInt16BE(start + 1) !== TYPE.OPT) return null;
  if (start + 11 + message.readUInt16BE(start + 9) !== message.length) return null;
  return Math.min(Math.max(message.readUInt16BE(start + 3), PLAIN_UDP_BYTES), MAX_UDP_BYTES);
}

/** The question section for a name. Throws when a label is too long or has characters besides visible ASCII. */
export function writeQuestion(name: string, type: number): Buffer {
  const tail = Buffer.from([0, 0, 0, 0, CLASS_IN]);
  tail.writeUInt16BE(type, 1);
  return Buffer.concat([...name.split(".").map(writeLabel), tail]);
}

function writeLabel(label: string): Buffer {
  if (!/^[!-~]{1,63}$/.test(label)) throw new Error("a label of the name cannot be asked for");
  return Buffer.from(`${String.fromCharCode(label.length)}${label}`, "latin1");
}
