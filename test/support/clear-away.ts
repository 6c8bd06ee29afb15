/**
 * Ends a service that its test can no longer stop, with the machines of its sessions, and removes its data. Usage:
 * clear-away.ts PID DATA_DIR. Does nothing if the process is gone or its pid was reused: then the service was stopped
 * properly.
 */
import { rm } from "node:fs/promises";
import { sleep } from "@vivarium/kit/clock";
import { SLOWNESS } from "@vivarium/kit/test-support/slowness";
import { readProcess } from "./host-processes.ts";
import { killMachines, machineTraces } from "./machine-traces.ts";

const STOP_LIMIT_MS = 45_000 * SLOWNESS;

const [pid, dataDir] = [Number(process.argv[2]), process.argv[3] ?? ""];
const isIt = () => readProcess(pid)?.argv.includes(dataDir) === true;
if (isIt()) {
  process.kill(pid, "SIGTERM");
  for (const until = Date.now() + STOP_LIMIT_MS; isIt() && Date.now() < until; ) await sleep(100);
  killMachines(machineTraces(dataDir), dataDir);
  // A killed machine may still write for a moment.
  await sleep(500);
  await rm(dataDir, { recursive: true, force: true });
}
