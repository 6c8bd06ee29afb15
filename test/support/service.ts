/**
 * Starts the real service for end-to-end tests and stops it at the end; fails if it leaves anything behind. Its data
 * directory is inside the storage pool, so that disks are cloned as in production. Test files that run at the same time
 * have a service each. VIV_TEST_KEEP=1 keeps the data directory and its logs.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, openSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { sleep } from "@vivarium/kit/clock";
import { randomId } from "@vivarium/kit/id";
import { freePort } from "@vivarium/kit/test-support/free-port";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import type { TestProject } from "vitest/node";
import { endWithMe } from "./end-with-me.ts";
import { eventually } from "./eventually.ts";
import { descendantsOf, readProcess } from "./host-processes.ts";
import { killMachines, type MachineTraces, machineTraces } from "./machine-traces.ts";

const ROOT = join(import.meta.dirname, "../..");
export const POOL = join(process.env.VIV_DATA_DIR ?? "/var/lib/vivarium", "pool");
export const IMAGES = process.env.VIV_IMAGES_DIR ?? join(POOL, "images");
const START_LIMIT_MS = 90_000 * SLOWNESS;
const STOP_LIMIT_MS = 45_000;

export interface ServiceFacts {
  url: string;
  apiKey: string;
  dataDir: string;
  nodeSocket: string;
  /** Pid of the supervisor; `servicePid` finds its children. */
  pid: number;
  logFile: string;
}

declare module "vitest" {
  export interface ProvidedContext {
    /** One service per vitest worker. */
    services: ServiceFacts[];
  }
}

export interface Service {
  facts: ServiceFacts;
  stop(): Promise<void>;
}

let services: Service[] = [];

export async function setup(project: TestProject): Promise<void> {
  const wanted = Array.from({ length: project.config.maxWorkers }, () => startService());
  const started = await Promise.allSettled(wanted);
  services = started.flatMap((outcome) => (outcome.status === "fulfilled" ? [outcome.value] : []));
  const failure = started.find((outcome) => outcome.status === "rejected");
  if (failure) {
    await teardown();
    throw failure.reason;
  }
  project.provide(
    "services",
    services.map(({ facts }) => facts),
  );
}

export async function teardown(): Promise<void> {
  const stops = await Promise.allSettled(services.map((service) => service.stop()));
  for (const outcome of stops) if (outcome.status === "rejected") throw outcome.reason;
}

export interface ServiceSettings {
  /** More environment variables. Tests count machines, so none are kept warm by default. */
  env?: Record<string, string>;
  dataDir?: string;
  imagesDir?: string;
  /** The checkout or copy whose `viv up` it is; default: this one. */
  root?: string;
}

export async function startService(settings: ServiceSettings = {}): Promise<Service> {
  const { env = {}, dataDir = join(POOL, "tests", randomId(8)), imagesDir = IMAGES, root = ROOT } = settings;
  if (!existsSync(join(imagesDir, "templates/base/current")))
    throw new Error(`no base template in ${imagesDir}: run ./setup first`);
  await mkdir(dataDir, { recursive: true });
  const port = await freePort();
  const logFile = `${dataDir}.log`;
  const log = openSync(logFile, "a");
  // Earlier services over the same data may have written to this log.
  const logged = readFileSync(logFile, "utf8").length;
  const child = spawn(
    process.execPath,
    [
      ...[join(root, "packages/cli/src/main.ts"), "up"],
      ...["--data-dir", dataDir, "--images-dir", imagesDir, "--listen", `127.0.0.1:${port}`],
    ],
    {
      cwd: ROOT,
      stdio: ["pipe", log, log],
      env: {
        ...ownEnvironment(),
        VIV_WARM_MACHINES: "0",
        VIV_INGRESS_LISTEN: `127.0.0.1:${await freePort()}`,
        ...env,
      },
      detached: true,
    },
  );
  endWithMe(child.pid as number, dataDir);
  const url = `http://127.0.0.1:${port}`;
  try {
    await waitUntilHealthy(url, child, { logFile, logged });
  } catch (error) {
    await stop(child, dataDir, logFile).catch(() => {});
    throw error;
  }
  const apiKey = readFileSync(join(dataDir, "control/bootstrap.key"), "utf8").trim();
  const nodeSocket = join(dataDir, "run/node.sock");
  const facts = { url, apiKey, dataDir, nodeSocket, pid: child.pid as number, logFile };
  return { facts, stop: () => stop(child, dataDir, logFile) };
}

/** Pid of a supervised process, found by its entry file. */
export function servicePid(facts: ServiceFacts, process: "node" | "control" | "gateway"): number {
  const entry = `packages/${process}/src/main.ts`;
  const found = descendantsOf(facts.pid).find(({ argv }) => argv.some((word) => word.endsWith(entry)));
  if (!found) throw new Error(`the service runs no ${process}; its log is ${facts.logFile}`);
  return found.pid;
}

/** Stops control until `resume`: it would end the machines that a test starts without a session. */
export function suspendControl(facts: ServiceFacts): { resume: () => void } {
  const pid = servicePid(facts, "control");
  process.kill(pid, "SIGSTOP");
  return { resume: () => process.kill(pid, "SIGCONT") };
}

export function postgresPid(facts: ServiceFacts): number {
  const file = join(facts.dataDir, "postgres/data/postmaster.pid");
  return Number(readFileSync(file, "utf8").split("\n")[0]);
}

/** Waits for a healthy answer and for `viv up`'s banner: `viv up` gives up if the service is stopped before that. */
async function waitUntilHealthy(
  url: string,
  child: ChildProcess,
  { logFile, logged }: { logFile: string; logged: number },
): Promise<void> {
  const deadline = Date.now() + START_LIMIT_MS;
  const isUp = () => readFileSync(logFile, "utf8").slice(logged).includes("Vivarium serves");
  for (;;) {
    const isHealthy = await fetch(`${url}/v1/healthz`).then(
      (response) => response.ok,
      () => false,
    );
    if (isHealthy && isUp()) return;
    if (child.exitCode !== null || Date.now() > deadline)
      throw new Error(`the service did not come up. The ends of its logs:\n${tails(logFile)}`);
    await sleep(100);
  }
}

async function stop(child: ChildProcess, dataDir: string, logFile: string): Promise<void> {
  const pids = descendantsOf(child.pid as number).map(({ pid }) => pid);
  child.kill("SIGTERM");
  child.stdin?.end();
  await eventually(() => {
    const alive = [child.pid as number, ...pids].filter((pid) => readProcess(pid) !== undefined);
    if (alive.length > 0) throw new Error(`still running: ${alive.join(", ")}\n${tail(logFile)}`);
  }, STOP_LIMIT_MS).finally(() => killRest([child.pid as number, ...pids]));
  const left = machineTraces(dataDir);
  killMachines(left, dataDir);
  if (!isNothing(left)) throw new Error(`the service left behind: ${JSON.stringify(left)}\n${tail(logFile)}`);
  if (process.env.VIV_TEST_KEEP) return;
  await rm(dataDir, { recursive: true, force: true });
  await rm(logFile, { force: true });
}

const isNothing = (traces: MachineTraces) =>
  Object.values(traces).every((count) => (Array.isArray(count) ? count.length === 0 : count === 0));

function killRest(pids: number[]): void {
  for (const pid of pids) if (readProcess(pid)) process.kill(pid, "SIGKILL");
}

/** Last lines of the logs of all processes, since the logs are removed with the service. */
function tails(logFile: string): string {
  const folder = join(logFile.replace(/\.log$/, ""), "log");
  const names = existsSync(folder) ? readdirSync(folder).toSorted() : [];
  return [logFile, ...names.map((name) => join(folder, name))]
    .map((file) => `${file}\n${tail(file)}`)
    .join("\n");
}

/** The environment without settings of the developer's own service. */
function ownEnvironment(): NodeJS.ProcessEnv {
  const isOthers = (name: string) => name.startsWith("VIV_") || name === "DATABASE_URL";
  const kept = Object.entries(process.env).filter(([name]) => !isOthers(name));
  return Object.fromEntries(kept);
}

function tail(file: string): string {
  return existsSync(file) ? readFileSync(file, "utf8").split("\n").slice(-30).join("\n") : "(no log)";
}
