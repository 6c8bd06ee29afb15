/** Starts and stops the built-in database. */
import { readFileSync } from "node:fs";
import path from "node:path";
import type { Account } from "@vivarium/kit/account";
import { sleep } from "@vivarium/kit/clock";
import { identify, type ProcessIdentity } from "@vivarium/kit/process-identity";
import type { Layout } from "./layout.ts";
import { CLEAN_ENV, type PostgresFiles } from "./postgres-files.ts";
import { adoptProcess, type Running, startProcess } from "./running.ts";
import { asUser } from "./service-user.ts";

/** After a crash it first repeats what its log has. */
const READY_LIMIT_MS = 300_000;
const READY_POLL_MS = 20;
/** PostgreSQL's fast shutdown: clients are disconnected and everything is written. */
const FAST_SHUTDOWN = { signal: "SIGINT", limitMs: 20_000 } as const;

const SETTINGS: Readonly<Record<string, string>> = {
  listen_addresses: "",
  unix_socket_permissions: "0700",
  max_connections: "60",
  shared_buffers: "64MB",
  work_mem: "4MB",
  maintenance_work_mem: "32MB",
  max_wal_size: "256MB",
  // Small commits at the same time share one flush; none is acknowledged before it is on disk.
  fsync: "on",
  synchronous_commit: "on",
  log_timezone: "UTC",
  timezone: "UTC",
  log_line_prefix: "%m [%p] ",
  log_min_messages: "warning",
};

interface PostgresPlace {
  layout: Layout;
  files: PostgresFiles;
  /** Undefined: standard output. */
  logFile: string | undefined;
}

/**
 * Starts the database, or adopts the one that a killed supervisor left running: ending it would only cost a recovery.
 */
export async function launchPostgres(
  place: PostgresPlace,
  user: Account,
  signal: AbortSignal,
): Promise<Running> {
  const { files } = place;
  const left = findPostmaster(files.cluster);
  const running = left ? adoptProcess(left, FAST_SHUTDOWN) : startPostmaster(place, user);
  await waitUntilReady({ cluster: files.cluster, log: place.logFile ?? "this log" }, running, signal);
  return running;
}

/** The postmaster that serves this cluster now, started by any process. */
function findPostmaster(cluster: string): ProcessIdentity | undefined {
  const pid = Number(readPidFile(cluster)[0]);
  const identity = pid > 0 ? identify(pid) : undefined;
  return identity && readCommandLine(pid).includes(cluster) ? identity : undefined;
}

/** Stops a postmaster that no supervisor watches. */
export async function stopLeftPostgres(cluster: string): Promise<boolean> {
  const left = findPostmaster(cluster);
  if (!left) return false;
  await adoptProcess(left, FAST_SHUTDOWN).stop();
  return true;
}

function startPostmaster({ layout, files, logFile }: PostgresPlace, user: Account): Running {
  const settings = { ...SETTINGS, unix_socket_directories: layout.postgresSocketDir };
  const flags = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const program = path.join(files.programs, "bin", "postgres");
  return startProcess(asUser(user, [program, "-D", files.cluster, ...flags]), {
    env: CLEAN_ENV,
    logFile,
    cwd: "/",
    stop: FAST_SHUTDOWN,
    outlives: true,
  });
}

/** Waits until the postmaster's pid file reports that it is ready; stops it at the time limit or on abort. */
async function waitUntilReady(
  { cluster, log }: { cluster: string; log: string },
  running: Running,
  signal: AbortSignal,
): Promise<void> {
  let ending: string | undefined;
  void running.ended.then((how) => {
    ending = how;
  });
  const deadline = performance.now() + READY_LIMIT_MS;
  while (!isReady(cluster, running.pid)) {
    if (ending !== undefined) throw new Error(`${ending} before it was ready; see ${log}`);
    if (performance.now() > deadline) {
      await running.stop();
      throw new Error(`not ready within ${READY_LIMIT_MS / 1000} s; see ${log}`);
    }
    if (signal.aborted) {
      await running.stop();
      throw new Error("stopped before it was ready");
    }
    await sleep(READY_POLL_MS);
  }
}

/** Compares pids: setpriv executes the postmaster in place, so the pid that was started is the pid in the file. */
function isReady(cluster: string, pid: number): boolean {
  const lines = readPidFile(cluster);
  return Number(lines[0]) === pid && lines[7]?.trim() === "ready" && identify(pid) !== undefined;
}

function readPidFile(cluster: string): string[] {
  try {
    return readFileSync(path.join(cluster, "postmaster.pid"), "utf8").split("\n");
  } catch {
    return [];
  }
}

function readCommandLine(pid: number): string[] {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, "utf8").split("\0");
  } catch {
    return [];
  }
}
