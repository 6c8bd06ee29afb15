/**
 * Runs one command of a fake machine as a real process of this host and writes the frames of its exec answer. Behaves
 * like the agent: own process group, output limits, exit codes, a wait of 500 ms for pipes that stay open.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { constants } from "node:os";
import type { Readable, Writable } from "node:stream";
import { setTimeout as sleep } from "node:timers/promises";
import { LIMITS } from "@vivarium/contract/api";
import { encodeFrame, FRAME, type FrameType, GUEST_LIMITS } from "@vivarium/contract/guest";
import type { ExecCall } from "@vivarium/contract/node";

export interface HostCommand {
  call: ExecCall;
  argv: string[];
  cwd: string;
  env: Record<string, string>;
  out: Writable;
  /** Called once before the first frame, also when the command cannot be spawned. */
  onSpawned: () => void;
  /** Aborted when the caller disconnects or the machine ends. */
  signal: AbortSignal;
  onGroup: (pgid: number) => void;
}

export async function streamHostCommand(command: HostCommand): Promise<void> {
  const { call, argv, cwd, env, out, signal } = command;
  const startedAt = process.hrtime.bigint();
  const limit = call.output_limit_bytes ?? Number.POSITIVE_INFINITY;
  let child: ChildProcess;
  try {
    child = await spawned(argv, cwd, env);
  } catch (cause) {
    command.onSpawned();
    answerUnspawnable(out, argv[0] ?? "", cause);
    return;
  }
  const pgid = child.pid as number;
  command.onGroup(pgid);
  command.onSpawned();
  let isTimedOut = false;
  const timer = setTimeout(() => {
    isTimedOut = true;
    killGroup(pgid);
  }, call.timeout_ms);
  const onAbort = () => killGroup(pgid);
  signal.addEventListener("abort", onAbort, { once: true });
  if (signal.aborted) onAbort();
  const exited = new Promise<number>((resolve) =>
    child.once("exit", (code, name) => resolve(code ?? 128 + constants.signals[name as NodeJS.Signals])),
  );
  const stdout = pump(child.stdout as Readable, out, FRAME.stdout, limit);
  const stderr = pump(child.stderr as Readable, out, FRAME.stderr, limit);
  const exitCode = await exited;
  const durationUs = Number((process.hrtime.bigint() - startedAt) / 1000n);
  clearTimeout(timer);
  await Promise.race([Promise.all([stdout.ended, stderr.ended]), sleep(LIMITS.execPipeLingerMs)]);
  signal.removeEventListener("abort", onAbort);
  stdout.stop();
  stderr.stop();
  const end = {
    exit_code: isTimedOut ? -1 : exitCode,
    timed_out: isTimedOut,
    duration_us: durationUs,
    stdout_truncated: stdout.isTruncated(),
    stderr_truncated: stderr.isTruncated(),
  };
  out.end(encodeFrame(FRAME.exit, JSON.stringify(end)));
}

export function killGroup(pgid: number): void {
  try {
    process.kill(-pgid, "SIGKILL");
  } catch {
    // The group has ended already.
  }
}

function spawned(argv: string[], cwd: string, env: Record<string, string>): Promise<ChildProcess> {
  return new Promise((resolve, reject) => {
    const child = spawn(argv[0] as string, argv.slice(1), {
      cwd,
      env,
      detached: true,
      stdio: ["ignore", "pipe", "pipe"],
    });
    child.once("spawn", () => resolve(child));
    child.once("error", reject);
  });
}

function answerUnspawnable(out: Writable, name: string, cause: unknown): void {
  const isMissing = (cause as NodeJS.ErrnoException).code === "ENOENT";
  const line = isMissing ? `${name}: command not found\n` : `${name}: cannot be executed\n`;
  out.write(encodeFrame(FRAME.stderr, line));
  const end = {
    exit_code: isMissing ? 127 : 126,
    timed_out: false,
    duration_us: 0,
    stdout_truncated: false,
    stderr_truncated: false,
  };
  out.end(encodeFrame(FRAME.exit, JSON.stringify(end)));
}

/** Copies one stream into frames. A slow reader pauses the command; output over the limit is dropped. */
function pump(from: Readable, out: Writable, type: FrameType, limit: number) {
  let sent = 0;
  let isTruncated = false;
  let isStopped = false;
  const resume = () => from.resume();
  from.on("data", (chunk: Buffer) => {
    if (isStopped) return;
    const kept = chunk.subarray(0, Math.max(0, limit - sent));
    isTruncated ||= kept.length < chunk.length;
    sent += kept.length;
    for (let at = 0; at < kept.length; at += GUEST_LIMITS.framePayloadBytes) {
      const frame = encodeFrame(type, kept.subarray(at, at + GUEST_LIMITS.framePayloadBytes));
      if (out.write(frame)) continue;
      from.pause();
      out.once("drain", resume);
    }
  });
  const ended = new Promise<void>((resolve) => {
    from.once("close", resolve);
    from.once("error", () => resolve());
  });
  return {
    ended,
    isTruncated: () => isTruncated,
    stop: () => {
      isStopped = true;
      from.destroy();
    },
  };
}
