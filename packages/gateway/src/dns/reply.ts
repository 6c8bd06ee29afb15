/** Writes replies to a guest's DNS question. */
import type { Question } from "./question.ts";

export const RCODE = { noError: 0, serverFailure: 2, noSuchName: 3, refused: 5 } as const;

const ANSWERS = 0x8080;
const RECURSION_DESIRED = 0x0100;
const TRUNCATED = 0x0200;
/** Start of an A record: a pointer to the question's name, type A, class IN, four bytes for the TTL, data length 4. */
const ADDRESS_RECORD = [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4];
const TTL_AT = 6;
const HEADER_BYTES = 12;

export function writeReply(question: Question, rcode: number): Buffer {
  return Buffer.concat([writeHeader(question, rcode, 0), question.raw]);
}

/** Writes the addresses as records of the asked name itself, without the aliases that led to them. */
export function writeAddresses(question: Question, addresses: readonly string[], ttlS: number): Buffer {
  const records = addresses.map((address) => {
    const record = Buffer.from([...ADDRESS_RECORD, ...address.split(".").map(Number)]);
    record.writeUInt32BE(ttlS, TTL_AT);
    return record;
  });
  return Buffer.concat([writeHeader(question, RCODE.noError, addresses.length), question.raw, ...records]);
}

/** The reply if it fits into the client's datagram, else a truncated reply, which makes the client use TCP. */
export function fitUdp(question: Question, reply: Buffer): Buffer {
  if (reply.length <= question.udpLimit) return reply;
  const cut = writeReply(question, RCODE.noError);
  cut.writeUInt16BE(cut.readUInt16BE(2) | TRUNCATED, 2);
  return cut;
}

function writeHeader(question: Question, rcode: number, answers: number): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt16BE(question.id, 0);
  header.writeUInt16BE(ANSWERS | (question.isRecursionDesired ? RECURSION_DESIRED : 0) | rcode, 2);
  header.writeUInt16BE(1, 4);
  header.writeUInt16BE(answers, 6);
  return header;
}
