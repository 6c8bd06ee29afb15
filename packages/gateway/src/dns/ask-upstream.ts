/**
 * Asks name servers one question. Against forged answers, id and source port are random for each question, and only an
 * answer from the asked address with the same id and question is accepted.
 */
import { randomInt } from "node:crypto";
import { createSocket } from "node:dgram";
import { connect } from "node:net";
import { readMessages, withLength } from "./tcp-messages.ts";

const ATTEMPTS = 3;
/** Time limit of one attempt, when the caller gives none. */
export const ATTEMPT_MS = 1_400;
const HEADER_BYTES = 12;
const MAX_ANSWER_BYTES = 65_535;
const DNS_PORT = 53;
/** The EDNS record of a question: allows answers of up to 1232 bytes over UDP. */
const EDNS = Buffer.from([0, 0, 41, 0x04, 0xd0, 0, 0, 0, 0, 0, 0]);

/** Time limit for one answer to a guest, including all questions to name servers that lead to it. */
export function answerLimitMs(attemptMs = ATTEMPT_MS): number {
  return ATTEMPTS * attemptMs;
}

/** Resolves to the first usable answer. Rejects when all attempts failed, or at `until` (of `performance.now()`). */
export async function askUpstream(
  resolvers: readonly string[],
  question: Buffer,
  attemptMs = ATTEMPT_MS,
  until = performance.now() + answerLimitMs(attemptMs),
): Promise<Buffer> {
  if (resolvers.length === 0) throw new Error("no name server is known");
  let failure: unknown;
  for (let attempt = 0; attempt < ATTEMPTS; attempt += 1) {
    const resolver = resolvers[attempt % resolvers.length] ?? "";
    const leftMs = Math.ceil(until - performance.now());
    if (leftMs <= 0) break;
    try {
      return await askOnce(splitAddress(resolver), question, Math.min(leftMs, attemptMs));
    } catch (error) {
      failure = error;
    }
  }
  throw new Error("no name server gave an answer", { cause: failure });
}

type Server = ReturnType<typeof splitAddress>;

function splitAddress(resolver: string) {
  const [address = "", port] = resolver.split(":");
  return { address, port: port === undefined ? DNS_PORT : Number(port) };
}

async function askOnce(server: Server, question: Buffer, limitMs: number): Promise<Buffer> {
  const message = writeMessage(question);
  const signal = AbortSignal.timeout(limitMs);
  const answer = await askOverUdp(server, message, signal);
  const whole = isTruncated(answer) ? await askOverTcp(server, message, signal) : answer;
  const rcode = whole.readUInt16BE(2) & 0xf;
  if (rcode === 0 || rcode === 3) return whole;
  throw new Error(`the name server answered with code ${rcode}`);
}

function writeMessage(question: Buffer): Buffer {
  const header = Buffer.from([0, 0, 0x01, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
  header.writeUInt16BE(randomInt(0x1_0000), 0);
  return Buffer.concat([header, question, EDNS]);
}

function askOverUdp({ address, port }: Server, message: Buffer, signal: AbortSignal): Promise<Buffer> {
  const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
  const socket = createSocket("udp4");
  const onAbort = () => reject(new Error("the name server did not answer in time"));
  signal.addEventListener("abort", onAbort, { once: true });
  socket.on("error", reject);
  socket.on("message", (answer) => {
    if (isAnswerTo(message, answer)) resolve(answer);
  });
  // On a connected socket the kernel accepts only this server's answers, and reports a port that nothing listens on.
  // Not the callback of `connect`: it is also called when the host has no route to the server.
  socket.once("connect", () => {
    socket.send(message, (error) => {
      if (error) reject(error);
    });
  });
  socket.connect(port, address);
  return promise.finally(() => {
    signal.removeEventListener("abort", onAbort);
    socket.close();
  });
}

async function askOverTcp({ address, port }: Server, message: Buffer, signal: AbortSignal): Promise<Buffer> {
  const socket = connect({ host: address, port, signal });
  // An error after the last read would have no listener and end the process.
  socket.on("error", () => {});
  socket.end(withLength(message));
  try {
    for await (const answer of readMessages(socket, MAX_ANSWER_BYTES)) {
      if (isAnswerTo(message, answer)) return answer;
      throw new Error("the name server answered something else");
    }
    throw new Error("the name server closed the connection");
  } finally {
    socket.destroy();
  }
}

function isTruncated(answer: Buffer): boolean {
  return (answer.readUInt16BE(2) & 0x0200) !== 0;
}

function isAnswerTo(message: Buffer, answer: Buffer): boolean {
  const end = message.length - EDNS.length;
  if (answer.length < end || answer.readUInt16BE(0) !== message.readUInt16BE(0)) return false;
  const isResponse = (answer.readUInt16BE(2) & 0xf800) === 0x8000;
  const sameQuestion =
    answer.readUInt16BE(4) === 1 &&
    lower(answer.subarray(HEADER_BYTES, end)) === lower(message.subarray(HEADER_BYTES, end));
  return isResponse && sameQuestion;
}

function lower(section: Buffer): string {
  return section.toString("latin1").toLowerCase();
}
