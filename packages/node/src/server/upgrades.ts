/** Serves `/terminals` and `/tunnel` of a machine, whose connections are upgraded to raw bytes both ways. */
import { type IncomingMessage, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Duplex as AnySocket } from "node:stream";
import { encodeTerminalFrame, TERMINAL_FRAME } from "@vivarium/contract/guest";
import { encodeOpening, OpeningReader, TerminalSpec, TunnelSpec } from "@vivarium/contract/node";
import type { Log } from "@vivarium/kit/log";
import type { FastifyInstance } from "fastify";
import type { AgentClient } from "../guest/client.ts";
import { type Duplex, joinGuest } from "../guest/duplex.ts";
import { TerminalCheck } from "../guest/terminals.ts";
import { NodeError } from "../node-error.ts";
import { machineId, parse } from "./params.ts";
import { type RefusalAnswer, refusalOf } from "./refusals.ts";

const PROTOCOL = "vivarium-stream";
const PATH = /^\/v1\/machines\/([^/]*)\/(terminals|tunnel)$/;
const OPENING_WITHIN_MS = 10_000;
/** How long a caller that was refused may take to read the refusal. */
const END_WITHIN_MS = 10_000;
const SWITCHING = `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: ${PROTOCOL}\r\n\r\n`;

interface UpgradeDeps {
  table: { getRunning(machineId: string): { agent: AgentClient } };
  log: Log;
}
type Kind = "terminals" | "tunnel";

export function registerUpgrades(server: FastifyInstance, deps: UpgradeDeps): void {
  const open = new Set<AnySocket>();
  server.server.on("upgrade", (request: IncomingMessage, socket: AnySocket, head: Buffer) => {
    open.add(socket);
    socket.on("error", () => {}).once("close", () => open.delete(socket));
    socket.unshift(head);
    void serve(deps, request, socket as Socket);
  });
  // The server waits for its connections to close, and upgraded connections close only if they are ended here.
  server.addHook("preClose", async () => {
    for (const socket of open) socket.destroy();
  });
}

async function serve(deps: UpgradeDeps, request: IncomingMessage, caller: Socket): Promise<void> {
  let accepted: { agent: AgentClient; kind: Kind };
  try {
    accepted = accept(deps, request);
  } catch (error) {
    return endWith(caller, httpAnswer(refusalOf(error, deps.log)));
  }
  caller.write(SWITCHING);
  try {
    const duplex = duplexOf(accepted.kind, await readOpening(caller));
    await joinGuest(accepted.agent, caller, duplex, () => caller.write(encodeOpening({})));
  } catch (error) {
    endWith(caller, encodeOpening(refusalOf(error, deps.log).body));
  }
}

function accept({ table }: UpgradeDeps, { method, url = "", headers }: IncomingMessage) {
  const [, machine_id, kind] = PATH.exec(url) ?? [];
  if (kind === undefined || method !== "GET" || headers.upgrade?.toLowerCase() !== PROTOCOL)
    throw new NodeError("invalid", `no upgrade of this kind; ${PROTOCOL} is known, for terminals and tunnel`);
  return { agent: table.getRunning(machineId({ machine_id })).agent, kind: kind as Kind };
}

function duplexOf(kind: Kind, spec: unknown): Duplex {
  const checked = kind === "terminals" ? parse(TerminalSpec, spec) : parse(TunnelSpec, spec);
  const opening = encodeTerminalFrame(TERMINAL_FRAME.open, Buffer.from(JSON.stringify(checked)));
  return { path: `/v1/${kind}`, opening, check: kind === "terminals" ? new TerminalCheck() : undefined };
}

/** Reads the caller's opening. Bytes after it stay in the connection. */
function readOpening(caller: Socket): Promise<unknown> {
  const { promise, resolve, reject } = Promise.withResolvers<unknown>();
  const reader = new OpeningReader();
  const give = (reason: string, cause?: unknown) => reject(new NodeError("invalid", reason, { cause }));
  const onData = (chunk: Buffer) => {
    try {
      const opening = reader.push(chunk);
      if (opening === undefined) return;
      caller.off("data", onData).pause();
      caller.unshift(opening.rest);
      resolve(opening.value);
    } catch (cause) {
      give((cause as Error).message, cause);
    }
  };
  const onEnd = () => give("the connection ended before its opening");
  const timer = setTimeout(() => give(`no opening came within ${OPENING_WITHIN_MS} ms`), OPENING_WITHIN_MS);
  caller.on("data", onData).once("end", onEnd).once("close", onEnd);
  return promise.finally(() => {
    clearTimeout(timer);
    caller.off("data", onData).off("end", onEnd).off("close", onEnd);
  });
}

function httpAnswer({ status, body }: RefusalAnswer): string {
  const text = JSON.stringify(body);
  const head = [
    `HTTP/1.1 ${status} ${STATUS_CODES[status]}`,
    "content-type: application/json",
    `content-length: ${Buffer.byteLength(text)}`,
    "connection: close",
  ];
  return `${head.join("\r\n")}\r\n\r\n${text}`;
}

function endWith(caller: Socket, last: string | Buffer): void {
  const timer = setTimeout(() => caller.destroy(), END_WITHIN_MS).unref();
  caller.once("close", () => clearTimeout(timer));
  caller.resume().end(last);
}
