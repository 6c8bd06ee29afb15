/**
 * Terminals and the tunnel of a fake machine. A terminal is a real one of this host, made by script(1); the tunnel says
 * what an SSH server says first and then echoes.
 */
import { type ChildProcess, spawn } from "node:child_process";
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { encodeTerminalFrame, TERMINAL_FRAME, TerminalFrameDecoder } from "@vivarium/contract/guest";
import { encodeOpening, NODE_ERRORS, OpeningReader, TerminalCall, TunnelCall } from "@vivarium/contract/node";
import { type FakeMachine, Refusal, valid } from "./fake-machine.ts";
import { killGroup } from "./host-command.ts";

export interface TerminalPlace {
  cwd: string;
  env: Record<string, string>;
  argv: string[];
}
type PlaceOf = (machine: FakeMachine, spec: TerminalCall) => Promise<TerminalPlace>;

const PATH = /^\/v1\/machines\/([^/]*)\/(terminals|tunnel)$/;

/** `find` refuses a machine that cannot be reached. */
export async function serveUpgrade(
  { request, socket, head }: { request: IncomingMessage; socket: Socket; head: Buffer },
  find: (machineId: string) => FakeMachine,
  placeOf: PlaceOf,
): Promise<void> {
  socket.on("error", () => {});
  let machine: FakeMachine;
  const [, id, kind] = PATH.exec(request.url ?? "") ?? [];
  try {
    if (id === undefined || request.headers.upgrade?.toLowerCase() !== "vivarium-stream")
      throw new Refusal("invalid", "no upgrade of this kind");
    machine = find(id);
  } catch (error) {
    return refuse(socket, error as Refusal);
  }
  const end = () => socket.destroy();
  machine.underWay.add(end);
  socket.once("close", () => machine.underWay.delete(end));
  socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: vivarium-stream\r\n\r\n");
  socket.unshift(head);
  try {
    const spec = await readOpening(socket);
    if (kind === "tunnel") echo(socket, valid(TunnelCall.safeParse(spec)));
    else await showTerminal(socket, machine, valid(TerminalCall.safeParse(spec)), placeOf);
  } catch (error) {
    const code = error instanceof Refusal ? error.code : "internal";
    socket.end(encodeOpening({ code, message: (error as Error).message }));
  }
}

function refuse(socket: Socket, { code, message }: Refusal): void {
  const body = JSON.stringify({ code, message });
  const head = `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close`;
  socket.end(`HTTP/1.1 ${NODE_ERRORS[code].status} Refused\r\n${head}\r\n\r\n${body}`);
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

function echo(socket: Socket, _spec: TunnelCall): void {
  socket.write(encodeOpening({}));
  socket.write("SSH-2.0-Fake\r\n");
  socket.pipe(socket);
}

const quote = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

async function showTerminal(socket: Socket, machine: FakeMachine, spec: TerminalCall, placeOf: PlaceOf) {
  const { cwd, env, argv } = await placeOf(machine, spec);
  const command = `stty rows ${spec.rows} cols ${spec.cols}; exec ${argv.map(quote).join(" ")}`;
  // The command stands for itself: script(1) runs it in a shell, whose own end would hide a signal.
  const child = spawn("script", ["-qfec", command, "/dev/null"], { cwd, env, detached: true });
  if (child.pid !== undefined) machine.groups.add(child.pid);
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
