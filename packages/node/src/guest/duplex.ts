/** Joins a caller's connection and a stream of the agent: bytes both ways at the reader's pace, and one common end. */
import type { ClientHttp2Stream } from "node:http2";
import type { Socket } from "node:net";
import type { AnswerCheck } from "./answer-check.ts";
import { assertAccepted, cancel } from "./answers.ts";
import type { AgentClient } from "./client.ts";

/** How long the agent may continue after the caller has ended. */
const FINISH_WITHIN_MS = 2_000;
/** How long the caller may read the rest after the agent has ended. */
const DRAIN_WITHIN_MS = 30_000;

export interface Duplex {
  path: string;
  /** Bytes that the agent gets before the caller's bytes. */
  opening: Buffer;
  /** Checks the agent's bytes. Absent: they pass unchanged. */
  check?: AnswerCheck;
}

/** Resolves once the agent has accepted the request. A caller that leaves before or after that ends its stream. */
export async function joinGuest(
  agent: AgentClient,
  caller: Socket,
  { path, opening, check }: Duplex,
  onAccepted: () => void,
): Promise<void> {
  const left = new AbortController();
  caller.once("close", () => left.abort());
  if (caller.destroyed) left.abort();
  const guest = await agent.open({ method: "POST", path, signal: left.signal });
  guest.write(opening);
  caller.pipe(guest);
  try {
    await assertAccepted(await agent.answerTo(guest, { isRepeatable: true }));
  } catch (error) {
    caller.unpipe(guest).resume();
    cancel(guest);
    throw error;
  }
  onAccepted();
  join(caller, guest, check);
}

function join(caller: Socket, guest: ClientHttp2Stream, check: AnswerCheck | undefined): void {
  const output = check?.follow(guest) ?? guest;
  const end = () => {
    cancel(guest);
    caller.destroy();
  };
  const endWithin = (limitMs: number) => {
    const timer = setTimeout(end, limitMs).unref();
    caller.once("close", () => clearTimeout(timer));
  };
  check?.on("error", end);
  caller.once("close", () => check?.destroy());
  if (caller.readableEnded) endWithin(FINISH_WITHIN_MS);
  else caller.once("end", () => endWithin(FINISH_WITHIN_MS));
  output.once("end", () => {
    caller.unpipe(guest).resume();
    guest.end();
    endWithin(DRAIN_WITHIN_MS);
  });
  guest.once("close", () => {
    if (!guest.readableEnded) end();
  });
  output.pipe(caller);
}
