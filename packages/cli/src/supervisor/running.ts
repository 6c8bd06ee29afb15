import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { sleep } from "@vivarium/kit/clock";
import { isAlive, type ProcessIdentity } from "@vivarium/kit/process-identity";

/** The signal that asks a process to stop, and when it is killed if it has not. */
export interface StopManner {
  signal: NodeJS.Signals;
  limitMs: number;
  /** Leaves standard input open: its end is a request to stop at once. */
  keepsInput?: boolean;
}

/** A running process, started by this supervisor or adopted from an earlier one. */
export interface Running {
  pid: number;
  /** Resolves when the process has ended, with how it ended. */
  ended: Promise<string>;
  /** Sends the stop signal of this process, or of the given manner, and SIGKILL after the time limit. */
  stop(manner?: StopManner): Promise<void>;
}

const ADOPTED_POLL_MS = 300;
const GRACEFUL: StopManner = { signal: "SIGTERM", limitMs: 15_000 };

/**
 * Starts a process in a session of its own, so that Ctrl-C reaches only the supervisor, which then stops the processes
 * in order. Output goes straight to the log file, or to the supervisor's standard output: no line is lost, and nothing
 * blocks when the supervisor dies.
 * Standard input is a pipe that ends with the supervisor, so that the process can exit as well.
 */
export function startProcess(
  argv: string[],
  options: {
    env: Record<string, string>;
    /** Default: standard output of this process. */
    logFile?: string | undefined;
    cwd: string;
    stop?: StopManner;
    /** Gives the process no pipe, so that it keeps running when the supervisor dies. */
    outlives?: boolean;
  },
): Running {
  const [program = "", ...args] = argv;
  const log = options.logFile === undefined ? 1 : openSync(options.logFile, "a", 0o640);
  const child = spawn(program, args, {
    env: options.env,
    cwd: options.cwd,
    detached: true,
    stdio: [options.outlives ? "ignore" : "pipe", log, log],
  });
  if (options.logFile !== undefined) closeSync(log);
  child.stdin?.on("error", () => {});
  const ended = new Promise<string>((resolve) => {
    child.on("error", (error) => resolve(error.message));
    child.on("exit", (code, signal) => resolve(signal ? `killed by ${signal}` : `exit code ${code}`));
  });
  const stop = (manner = options.stop ?? GRACEFUL) => {
    const kill = (signal: NodeJS.Signals) => {
      if (!(manner.keepsInput && signal === manner.signal)) child.stdin?.end();
      child.kill(signal);
    };
    return stopProcess(kill, ended, manner);
  };
  return { pid: child.pid ?? 0, ended, stop };
}

/** Watches a process that an earlier supervisor started. */
export function adoptProcess(identity: ProcessIdentity, usual: StopManner): Running {
  const ended = (async () => {
    while (isAlive(identity)) await sleep(ADOPTED_POLL_MS);
    return "gone";
  })();
  const kill = (signal: NodeJS.Signals) => {
    if (isAlive(identity)) process.kill(identity.pid, signal);
  };
  return { pid: identity.pid, ended, stop: (manner = usual) => stopProcess(kill, ended, manner) };
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
