/**
 * clear-away.ts PID DATA_DIR: ends a service that its test can no longer stop, with the machines of its sessions, and
 * removes its data. Does nothing when the process is gone, or its pid belongs to another process: then the service was
 * stopped properly.
 */
import { rm } from "node:fs/promises";
import { sleep } from "@vivarium/kit/clock";
import { readProcess } from "./host-processes.ts";
import { killMachines, machineTraces } from "./machine-traces.ts";

const STOP_LIMIT_MS = 45_000;

const [pid, dataDir] = [Number(process.argv[2]), process.argv[3] ?? ""];
const isIt = () => readProcess(pid)?.argv.includes(dataDir) === true;
if (isIt()) {
  process.kill(pid, "SIGTERM");
  for (const until = Date.now() + STOP_LIMIT_MS; isIt() && Date.now() < until; ) await sleep(100);
  killMachines(machineTraces(dataDir), dataDir);
  // A machine that is killed still writes for a moment.
  await sleep(500);
  await rm(dataDir, { recursive: true, force: true });
}
