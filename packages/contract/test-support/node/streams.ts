/**
 * Terminals and tunnels of a fake machine. A terminal is a real one of this host, made by script(1). A tunnel sends the
 * greeting of an SSH server and then echoes. A test may script the machine's side instead.
 */
import { type ChildProcess, spawn } from "node:child_process";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { encodeTerminalFrame, TERMINAL_FRAME, TerminalFrameDecoder } from "@vivarium/contract/guest";
import { encodeOpening, NODE_ERRORS, OpeningReader, TerminalSpec, TunnelSpec } from "@vivarium/contract/node";
import { translateCommand } from "./exec.ts";
import { killGroup } from "./host-command.ts";
import type { FakeMachine } from "./machine.ts";
import { machineId, running } from "./machine-table.ts";
import { bodyOfRefusal, Refusal, valid } from "./refusal.ts";
import type { NodeState } from "./state.ts";

export type StreamCall = { machineId: string } & (
  | { kind: "terminals"; spec: TerminalSpec }
  | { kind: "tunnel"; spec: TunnelSpec }
);

/** The machine's side of a terminal or a tunnel. */
export class Stream {
  readonly socket: Socket;
  /** Received terminal frames; chunks of a tunnel have type -1. */
  readonly received: { type: number; payload: Buffer }[] = [];
  readonly gone: Promise<void>;

  constructor(socket: Socket, kind: StreamCall["kind"]) {
    this.socket = socket;
    this.gone = new Promise((resolve) => socket.once("close", () => resolve()));
    const decoder = new TerminalFrameDecoder();
    socket.write(encodeOpening({}));
    socket.on("data", (chunk: Buffer) =>
      this.received.push(...(kind === "tunnel" ? [{ type: -1, payload: chunk }] : decoder.push(chunk))),
    );
    socket.resume();
  }
  send(type: number, payload: Buffer | string = ""): boolean {
    return this.socket.write(encodeTerminalFrame(type, Buffer.from(payload as string)));
  }
  exit(code: number): void {
    const payload = Buffer.alloc(4);
    payload.writeInt32BE(code);
    this.send(TERMINAL_FRAME.exit, payload);
    this.socket.end();
  }
}

const PATH = /^\/v1\/machines\/([^/]*)\/(terminals|tunnel)$/;
const SWITCHING =
  "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: vivarium-stream\r\n\r\n";

/** Serves an upgrade; resolves once the stream is open or refused. */
export async function serveUpgrade(
  state: NodeState,
  { request, socket, head }: { request: IncomingMessage; socket: Socket; head: Buffer },
): Promise<void> {
  const [, id = "", kind] = PATH.exec(request.url ?? "") ?? [];
  socket.on("error", () => socket.destroy());
  let machine: FakeMachine;
  try {
    if (kind === undefined || request.headers.upgrade?.toLowerCase() !== "vivarium-stream")
      throw new Refusal("invalid", "no upgrade of this kind");
    machine = running(state, machineId(id));
  } catch (error) {
    return refuseUpgrade(socket, error as Refusal);
  }
  socket.write(SWITCHING);
  socket.unshift(head);
  try {
    const spec = await readOpening(socket);
    const call =
      kind === "tunnel"
        ? { machineId: id, kind: "tunnel" as const, spec: valid(TunnelSpec.safeParse(spec)) }
        : { machineId: id, kind: "terminals" as const, spec: valid(TerminalSpec.safeParse(spec)) };
    await open(state, machine, call, socket);
  } catch (error) {
    if (!socket.destroyed) socket.end(encodeOpening(bodyOfRefusal(error)));
  }
}

/** Opens the stream. Race: meanwhile the machine may be stopped or end, and the caller may disconnect. */
async function open(state: NodeState, machine: FakeMachine, call: StreamCall, socket: Socket): Promise<void> {
  const { promise: brokenOff, reject } = Promise.withResolvers<never>();
  brokenOff.catch(() => {});
  let isOpen = false;
  const end = () => {
    if (isOpen) socket.destroy();
    else reject(new Refusal("agent_unavailable", "the agent broke the connection"));
  };
  machine.underWay.add(end);
  socket.once("close", () => machine.underWay.delete(end));
  const early = collectEarly(socket);
  const begin = () => {
    isOpen = true;
    early.giveBack();
  };
  const accept = () => {
    begin();
    const stream = new Stream(socket, call.kind);
    state.streams.push({ ...call, stream });
    return stream;
  };
  const proceed = async () => {
    if (call.kind === "terminals") await showTerminal(socket, machine, call.spec, begin);
    else echo(socket, begin);
  };
  await Promise.race([state.onStream(call, accept, proceed), brokenOff]);
}

/** Reads early input and gives it back later: only reading shows that a caller disconnects. */
function collectEarly(socket: Socket): { giveBack(): void } {
  const chunks: Buffer[] = [];
  const onData = (chunk: Buffer) => void chunks.push(chunk);
  socket.on("data", onData).once("end", () => socket.end());
  socket.resume();
  return {
    giveBack: () => {
      socket.off("data", onData).pause();
      if (!socket.readableEnded) socket.unshift(Buffer.concat(chunks));
    },
  };
}

function refuseUpgrade(socket: Socket, refusal: Refusal): void {
  const body = JSON.stringify(bodyOfRefusal(refusal));
  const head = `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close`;
  socket.end(`HTTP/1.1 ${NODE_ERRORS[refusal.code].status} Refused\r\n${head}\r\n\r\n${body}`);
}

function readOpening(socket: Socket): Promise<unknown> {
  const reader = new OpeningReader();
  return new Promise((resolve, reject) => {
    const onData = (chunk: Buffer) => {
      try {
        const opening = reader.push(chunk);
        if (opening === undefined) return;
        socket.off("data", onData).pause();
        socket.unshift(opening.rest);
        resolve(opening.value);
      } catch (error) {
        reject(new Refusal("invalid", (error as Error).message));
      }
    };
    socket.on("data", onData).once("close", () => reject(new Refusal("invalid", "no opening came")));
  });
}

function echo(socket: Socket, begin: () => void): void {
  begin();
  socket.write(encodeOpening({}));
  socket.write("SSH-2.0-Fake\r\n");
  socket.pipe(socket);
}

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

async function showTerminal(socket: Socket, machine: FakeMachine, spec: TerminalSpec, begin: () => void) {
  const { cwd, env, argv } = await translateCommand(machine, { ...spec, argv: spec.argv ?? ["bash", "-l"] });
  const command = `stty rows ${spec.rows} cols ${spec.cols}; exec ${argv.map(quote).join(" ")}`;
  // script(1) runs the command in a shell; without exec, that shell's exit code would hide a signal.
  const child = spawn("script", ["-qfec", command, "/dev/null"], { cwd, env, detached: true });
  if (child.pid !== undefined) machine.groups.add(child.pid);
  begin();
  socket.write(encodeOpening({}));
  child.stdout.on("data", (chunk: Buffer) => {
    if (socket.write(encodeTerminalFrame(TERMINAL_FRAME.data, chunk))) return;
    child.stdout.pause();
    socket.once("drain", () => child.stdout.resume());
  });
  child.once("close", (code) => {
    const exit = Buffer.alloc(4);
    exit.writeInt32BE(code ?? 129);
    socket.end(encodeTerminalFrame(TERMINAL_FRAME.exit, exit));
  });
  takeFrames(socket, child);
}

function takeFrames(socket: Socket, child: ChildProcess): void {
  const decoder = new TerminalFrameDecoder();
  child.stdin?.on("error", () => {});
  socket.on("data", (chunk: Buffer) => {
    for (const { type, payload } of decoder.push(chunk))
      if (type === TERMINAL_FRAME.data) child.stdin?.write(payload);
  });
  const hangUp = () => killGroup(child.pid ?? 0);
  socket.once("end", hangUp).once("close", hangUp).resume();
}
