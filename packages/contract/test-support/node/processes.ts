/** Named processes of a fake machine: processes of this host, their logs in memory. */
import { type ChildProcess, spawn } from "node:child_process";
import { EventEmitter, once } from "node:events";
import type { ServerResponse } from "node:http";
import { constants } from "node:os";
import { setTimeout as sleep } from "node:timers/promises";
import { LIMITS } from "@vivarium/contract/api";
import {
  encodeFrame,
  FRAME,
  GUEST_LIMITS,
  type GuestProcess,
  type ProcessSpec,
} from "@vivarium/contract/guest";
import type { TranslatedCommand } from "./exec.ts";
import { killGroup } from "./host-command.ts";
import type { FakeMachine } from "./machine.ts";
import { Refusal } from "./refusal.ts";

type LogType = typeof FRAME.stdout | typeof FRAME.stderr;
const STREAMS = [FRAME.stdout, FRAME.stderr] as const;

/** A named process. Emits `output` (type, chunk), and `over` when it has exited and its output is drained. */
export class NamedProcess extends EventEmitter {
  info: GuestProcess;
  readonly child: ChildProcess | undefined;
  readonly #logs = { [FRAME.stdout]: Buffer.alloc(0), [FRAME.stderr]: Buffer.alloc(0) };
  readonly #wasCut = new Set<LogType>();

  constructor(info: GuestProcess, child?: ChildProcess) {
    super();
    this.setMaxListeners(0);
    this.info = info;
    this.child = child;
    child?.stdout?.on("data", (chunk: Buffer) => this.log(FRAME.stdout, chunk));
    child?.stderr?.on("data", (chunk: Buffer) => this.log(FRAME.stderr, chunk));
    child?.once("close", (code, signal) =>
      this.end(code ?? 128 + constants.signals[signal as NodeJS.Signals]),
    );
  }

  log(type: LogType, chunk: Buffer): void {
    const whole = Buffer.concat([this.#logs[type], chunk]);
    if (whole.length > LIMITS.processLogBytes) this.#wasCut.add(type);
    this.#logs[type] = whole.subarray(-LIMITS.processLogBytes);
    this.emit("output", type, chunk);
  }

  end(exitCode: number): void {
    this.info = { ...this.info, state: "exited", exit_code: exitCode, ended_at_ms: Date.now() };
    this.emit("over");
  }

  /** The last bytes of both streams, and whether earlier ones are missing. */
  tail(bytes: number) {
    const last = (type: LogType) => (bytes === 0 ? Buffer.alloc(0) : this.#logs[type].subarray(-bytes));
    const isCut = (type: LogType) => this.#wasCut.has(type) || this.#logs[type].length > bytes;
    const end = { stdout_truncated: isCut(FRAME.stdout), stderr_truncated: isCut(FRAME.stderr) };
    return { last, end };
  }
}

export async function startProcess(
  machine: FakeMachine,
  spec: ProcessSpec,
  command: TranslatedCommand,
): Promise<GuestProcess> {
  const running = [...machine.processes.values()].filter(({ info }) => info.state === "running");
  if (machine.processes.get(spec.name)?.info.state === "running")
    throw new Refusal("process_exists", `${spec.name} is running`);
  if (running.length >= LIMITS.namedProcesses)
    throw new Refusal("process_limit", `${running.length} are running`);
  const { name, argv, keep_alive } = spec;
  const info: GuestProcess = { name, argv, keep_alive, state: "running", started_at_ms: Date.now() };
  const made = await spawnNamed(info, command);
  if (made.child?.pid !== undefined) machine.groups.add(made.child.pid);
  machine.processes.delete(name);
  machine.processes.set(name, made);
  return made.info;
}

async function spawnNamed(info: GuestProcess, { argv, cwd, env }: TranslatedCommand): Promise<NamedProcess> {
  const [file = "", ...rest] = argv;
  const child = spawn(file, rest, { cwd, env, detached: true, stdio: ["ignore", "pipe", "pipe"] });
  try {
    await once(child, "spawn");
    return new NamedProcess({ ...info, pid: child.pid }, child);
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
    const made = new NamedProcess(info);
    made.log(
      FRAME.stderr,
      Buffer.from(`${info.argv[0]}: ${isMissing ? "command not found" : "cannot be executed"}\n`),
    );
    made.end(isMissing ? 127 : 126);
    return made;
  }
}

export const listProcesses = (machine: FakeMachine) => ({
  processes: [...machine.processes.values()].map(({ info }) => info),
});

export function findProcess(machine: FakeMachine, name: string): NamedProcess {
  const found = machine.processes.get(name);
  if (!found) throw new Refusal("process_not_found", `no process ${name}`);
  return found;
}

export async function killProcess(machine: FakeMachine, name: string): Promise<GuestProcess> {
  const found = findProcess(machine, name);
  const pid = found.child?.pid;
  if (found.info.state === "exited" || pid === undefined) return found.info;
  const over = once(found, "over");
  process.kill(-pid, "SIGTERM");
  await Promise.race([over, sleep(LIMITS.processGraceMs).then(() => killGroup(pid))]);
  await over;
  return found.info;
}

export function sendLog(
  machine: FakeMachine,
  name: string,
  query: URLSearchParams,
  response: ServerResponse,
): void {
  const found = findProcess(machine, name);
  const follows = query.get("follow") === "true";
  const { last, end } = found.tail(follows ? LIMITS.processLogBytes : Number(query.get("tail_bytes")));
  const send = (type: LogType, bytes: Buffer) => {
    for (let at = 0; at < bytes.length; at += GUEST_LIMITS.framePayloadBytes)
      response.write(encodeFrame(type, bytes.subarray(at, at + GUEST_LIMITS.framePayloadBytes)));
  };
  const finish = () => response.end(encodeFrame(FRAME.eof, JSON.stringify(end)));
  response.writeHead(200, { "content-type": "application/octet-stream" });
  response.flushHeaders();
  for (const type of STREAMS) send(type, last(type));
  if (!follows || found.info.state === "exited") return void finish();
  found.on("output", send).once("over", finish);
  response.once("close", () => found.off("output", send).off("over", finish));
}
