/** Serves DNS over UDP and TCP at the host address of one slot, which only the slot's machine can reach. */
import { createSocket, type RemoteInfo } from "node:dgram";
import { once } from "node:events";
import { createServer, type Socket } from "node:net";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { sleep } from "@vivarium/kit/clock";
import type { EgressLog } from "../egress-log/lines.ts";
import type { MachineSlot } from "../tables/current-tables.ts";
import type { PerMachine } from "../tables/per-machine.ts";
import { type Listener, listenAt } from "../tables/slots.ts";
import { type Answer, type AnswerDeps, answerQuestion } from "./answer-question.ts";
import { type Question, readQuestion } from "./question.ts";
import type { QuestionRateLimit } from "./question-rate-limit.ts";
import { fitUdp, RCODE, writeReply } from "./reply.ts";
import { readMessages, withLength } from "./tcp-messages.ts";

export type DnsDeps = AnswerDeps & {
  egressLog: EgressLog;
  tcpRateLimits: PerMachine<QuestionRateLimit>;
  /** Milliseconds of silence after which a TCP connection is closed. */
  tcpIdleMs?: number;
};

/** The longest question, over UDP and over TCP. */
const MAX_UDP_BYTES = 512;
const MAX_TCP_BYTES = 4096;
const MAX_CONNECTIONS = 32;
const TCP_IDLE_MS = 5_000;

export async function listenUdp(deps: DnsDeps, hostAddress: string): Promise<Listener> {
  const socket = createSocket("udp4");
  const answer = async (message: Buffer, peer: RemoteInfo) => {
    const read = message.length <= MAX_UDP_BYTES ? readQuestion(message) : null;
    const reply = await answerAt(deps, hostAddress, message, read);
    // The slot may have been closed, and the socket with it, while the answer was looked up.
    if (read && reply && isOpen) socket.send(fitUdp(read, reply), peer.port, peer.address, () => {});
  };
  let isOpen = true;
  socket.on("message", (message, peer) => {
    answer(message, peer).catch((error: unknown) => deps.log.error({ err: error }, "a question broke"));
  });
  socket.bind({ address: hostAddress, port: GATEWAY_PORTS.dns, exclusive: true });
  try {
    await once(socket, "listening");
  } catch (error) {
    socket.close();
    throw error;
  }
  socket.on("error", (error) => deps.log.warn({ err: error, address: hostAddress }, "DNS socket"));
  return {
    close() {
      isOpen = false;
      socket.close();
    },
  };
}

export async function listenTcp(deps: DnsDeps, hostAddress: string): Promise<Listener> {
  const connections = new Set<Socket>();
  // Half-open: a client may end its side after the question and still read the answer.
  const server = createServer({ allowHalfOpen: true }, (socket) => {
    socket.on("error", () => {});
    if (connections.size >= MAX_CONNECTIONS) {
      socket.resetAndDestroy();
      return;
    }
    connections.add(socket);
    socket.on("close", () => connections.delete(socket));
    void serveConnection(deps, hostAddress, socket);
  });
  const listener = await listenAt(server, hostAddress, GATEWAY_PORTS.dns, {
    log: deps.log,
    name: "DNS server",
  });
  return {
    close() {
      listener.close();
      for (const socket of connections) socket.destroy();
    },
  };
}

/** Answers the questions of a connection one after the other, within the rate limit, until a question is unreadable. */
async function serveConnection(deps: DnsDeps, hostAddress: string, socket: Socket): Promise<void> {
  socket.setTimeout(deps.tcpIdleMs ?? TCP_IDLE_MS, () => socket.destroy());
  try {
    for await (const message of readMessages(socket, MAX_TCP_BYTES)) {
      await waitForToken(deps, hostAddress);
      if (socket.destroyed) return;
      const reply = await answerAt(deps, hostAddress, message, readQuestion(message));
      if (!reply) break;
      if (!socket.write(withLength(reply))) await hasSpaceIn(socket);
      if (socket.destroyed) return;
    }
  } catch {
    // The connection broke: the guest cannot read an answer.
  }
  socket.destroySoon();
}

/** Waits until the client has read its answers. Its further questions are not read meanwhile (back-pressure). */
async function hasSpaceIn(socket: Socket): Promise<void> {
  await new Promise((resolve) => socket.once("drain", resolve).once("close", resolve));
}

/** Waits for the rate limit. Further questions are not read meanwhile (back-pressure). */
async function waitForToken({ tables, tcpRateLimits }: DnsDeps, hostAddress: string): Promise<void> {
  const slot = tables.slotAt(hostAddress);
  const waitMs = slot ? tcpRateLimits.of(slot.machineId).take() : 0;
  if (waitMs > 0) await sleep(waitMs);
}

/** Resolves to the reply; undefined for a message that is not a readable question. */
async function answerAt(
  deps: DnsDeps,
  hostAddress: string,
  message: Buffer,
  question: Question | null,
): Promise<Buffer | undefined> {
  const slot = deps.tables.slotAt(hostAddress);
  if (!slot) return question ? writeReply(question, RCODE.refused) : undefined;
  const at = new Date().toISOString();
  const answer = question ? await answerQuestion(deps, slot, question) : null;
  logQuestion(deps, slot, { at, message, question, answer });
  // Hazard: the answer was decided for another policy or another machine. It is dropped.
  if (question && !isUnchanged(slot, deps.tables.slotAt(hostAddress))) {
    return writeReply(question, RCODE.serverFailure);
  }
  return answer?.reply;
}

function isUnchanged(before: MachineSlot, now: MachineSlot | undefined): boolean {
  return before.machineId === now?.machineId && before.generation === now.generation;
}

function logQuestion(
  { egressLog }: DnsDeps,
  { machineId }: MachineSlot,
  asked: { at: string; message: Buffer; question: Question | null; answer: Answer | null },
): void {
  const { at, message, question, answer } = asked;
  egressLog.add({
    machine_id: machineId,
    at,
    kind: "dns",
    ...(question && { host: question.name }),
    ...(answer?.address !== undefined && { address: answer.address }),
    port: 53,
    bytes_out: message.length,
    bytes_in: answer?.reply.length ?? 0,
    verdict: answer?.isAllowed ? "allowed" : "denied",
    reason: answer?.reason ?? "malformed",
  });
}
