/** Runs a name server on port 53 of one address, over UDP and TCP, which answers from the zone. */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { sleep } from "@vivarium/kit/clock";
import { type Answer, decode, encode, type Packet, RECURSION_AVAILABLE } from "dns-packet";
import type { WorldLog } from "./events.ts";
import type { NameAnswer, ZoneReader } from "./zone.ts";

const PORT = 53;
const NO_SUCH_NAME = 3;
const MAX_ALIASES = 10;
const DEFAULT_TTL_S = 60;

interface DnsDeps {
  zone: ZoneReader;
  log: WorldLog;
}

export async function listenDns(deps: DnsDeps, host: string): Promise<void> {
  const socket = createSocket("udp4");
  socket.on("message", async (message, peer) => {
    for (const answer of await answersTo(deps, { host, transport: "udp" }, message))
      socket.send(answer, peer.port, peer.address);
  });
  socket.bind({ address: host, port: PORT });
  const server = createServer((connection) => serveTcp(deps, host, connection));
  server.listen({ host, port: PORT });
  await Promise.all([once(socket, "listening"), once(server, "listening")]);
}

function serveTcp(deps: DnsDeps, host: string, connection: Socket): void {
  let received = Buffer.alloc(0);
  connection.on("error", () => {});
  connection.on("data", async (chunk) => {
    received = Buffer.concat([received, chunk]);
    if (received.length < 2 || received.length < 2 + received.readUInt16BE(0)) return;
    const message = received.subarray(2, 2 + received.readUInt16BE(0));
    received = received.subarray(2 + message.length);
    for (const answer of await answersTo(deps, { host, transport: "tcp" }, message)) {
      const length = Buffer.alloc(2);
      length.writeUInt16BE(answer.length);
      connection.write(Buffer.concat([length, answer]));
    }
  });
}

async function answersTo(
  { zone, log }: DnsDeps,
  at: { host: string; transport: "udp" | "tcp" },
  message: Buffer,
): Promise<Buffer[]> {
  const question = readQuestion(message);
  if (!question) {
    log.add({ kind: "dns", ...at, name: "?", type: "?" });
    return [];
  }
  log.add({ kind: "dns", ...at, name: question.name.toLowerCase(), type: question.type });
  const first = zone.next(question.name.toLowerCase());
  if (first?.isSilent) return [];
  if (first?.delayMs) await sleep(first.delayMs);
  const answer = write(question, first, recordsOf(zone, question, first));
  return [...falseAnswers(question, first), answer];
}

interface AskedQuestion {
  id: number;
  name: string;
  type: string;
}

function readQuestion(message: Buffer): AskedQuestion | undefined {
  try {
    const { id = 0, questions = [] } = decode(message);
    const [question] = questions;
    return question && { id, name: question.name, type: question.type };
  } catch {
    return undefined;
  }
}

/** Records of an answer with the whole CNAME chain, as a recursive name server sends it. */
function recordsOf(zone: ZoneReader, question: AskedQuestion, first: NameAnswer | undefined): Answer[] {
  const records: Answer[] = [];
  let owner = question.name;
  let found = first;
  for (let aliases = 0; found && aliases < MAX_ALIASES; aliases++) {
    records.push(...recordsAt(owner, question.type, found));
    if (found.cname === undefined) break;
    owner = found.cname;
    found = zone.next(owner);
  }
  return records;
}

function recordsAt(name: string, type: string, answer: NameAnswer): Answer[] {
  const ttl = answer.ttl ?? DEFAULT_TTL_S;
  if (answer.cname !== undefined) return [{ type: "CNAME", name, ttl, data: answer.cname }];
  if (type === "A") return (answer.a ?? []).map((data) => ({ type: "A", name, ttl, data }));
  if (type === "TXT" && answer.txt !== undefined) return [{ type: "TXT", name, ttl, data: answer.txt }];
  return (answer.others ?? [])
    .filter((other) => typeName(other.type) === type)
    .map((other) => ({ type, name, ttl, data: Buffer.from(other.data, "base64") }) as unknown as Answer);
}

const NAMED: Record<number, string> = { 28: "AAAA", 64: "SVCB", 65: "HTTPS" };
const typeName = (type: number) => NAMED[type] ?? `UNKNOWN_${type}`;

function falseAnswers({ id, name, type }: AskedQuestion, answer: NameAnswer | undefined): Buffer[] {
  if (answer?.lies === undefined) return [];
  const asked = answer.lies === "id" ? name : `not-${name}`;
  const ids = answer.lies === "id" ? [(id + 1) & 0xffff, (id + 2) & 0xffff] : [id];
  const data = answer.lie ?? "45.90.28.20";
  const answers: Answer[] = [{ type: "A", name: asked, ttl: DEFAULT_TTL_S, data }];
  return ids.map((other) => write({ id: other, name: asked, type }, undefined, answers));
}

function write({ id, name, type }: AskedQuestion, first: NameAnswer | undefined, answers: Answer[]): Buffer {
  const rcode = first?.rcode ?? (first || answers.length > 0 ? 0 : NO_SUCH_NAME);
  const packet = {
    id,
    type: "response",
    flags: RECURSION_AVAILABLE | rcode,
    questions: [{ type, name }],
    answers,
  };
  return encode(packet as unknown as Packet);
}
