import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { sleep } from "@vivarium/kit/clock";
import { isAlive, type ProcessIdentity } from "@vivarium/kit/process-identity";

/** A running process, started by this supervisor or adopted from an earlier one. */
export interface Running {
  pid: number;
  /** Resolves when the process has ended, with how it ended. */
  ended: Promise<string>;
  /** Sends the stop signal, and SIGKILL after the time limit. */
  stop(): Promise<void>;
}

interface StopManner {
  signal: NodeJS.Signals;
  limitMs: number;
}

const ADOPTED_POLL_MS = 300;
const GRACEFUL: StopManner = { signal: "SIGTERM", limitMs: 15_000 };

/**
 * Starts a process in a session of its own, so that Ctrl-C reaches only the supervisor, which then stops the processes
 * in order. Output goes straight to the log file: no line is lost, and nothing blocks when the supervisor dies.
 * Standard input is a pipe that ends with the supervisor, so that the process can exit as well.
 */
export function startProcess(
  argv: string[],
  options: {
    env: Record<string, string>;
    logFile: string;
    cwd: string;
    stop?: StopManner;
    /** Gives the process no pipe, so that it keeps running when the supervisor dies. */
    outlives?: boolean;
  },
): Running {
  const [program = "", ...args] = argv;
  const log = openSync(options.logFile, "a", 0o640);
  const child = spawn(program, args, {
    env: options.env,
    cwd: options.cwd,
    detached: true,
    stdio: [options.outlives ? "ignore" : "pipe", log, log],
  });
  closeSync(log);
  child.stdin?.on("error", () => {});
  const ended = new Promise<string>((resolve) => {
    child.on("error", (error) => resolve(error.message));
    child.on("exit", (code, signal) => resolve(signal ? `killed by ${signal}` : `exit code ${code}`));
  });
  const kill = (signal: NodeJS.Signals) => {
    child.stdin?.end();
    child.kill(signal);
  };
  return { pid: child.pid ?? 0, ended, stop: () => stopProcess(kill, ended, options.stop ?? GRACEFUL) };
}

/** Watches a process that an earlier supervisor started. */
export function adoptProcess(identity: ProcessIdentity, stop: StopManner): Running {
  const ended = (async () => {
    while (isAlive(identity)) await sleep(ADOPTED_POLL_MS);
    return "gone";
  })();
  const kill = (signal: NodeJS.Signals) => {
    if (isAlive(identity)) process.kill(identity.pid, signal);
  };
  return { pid: identity.pid, ended, stop: () => stopProcess(kill, ended, stop) };
}

async function stopProcess(
  kill: (signal: NodeJS.Signals) => unknown,
  ended: Promise<string>,
  { signal, limitMs }: StopManner,
): Promise<void> {
  kill(signal);
  const late = new AbortController();
  const first = await Promise.race([
    ended.then(() => "ended" as const),
    sleep(limitMs, late.signal).then(() => "late" as const),
  ]);
  late.abort();
  if (first === "ended") return;
  kill("SIGKILL");
  await ended;
}
