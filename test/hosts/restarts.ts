/**
 * A live session keeps its machine while the unit is restarted, while the unit's main process is killed, and while a package
 * update would restart the unit that holds the machines.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { expectEqual, ownClient, shell, untilHealthy } from "./inside.ts";

const MACHINES_UNIT = "vivarium-machines.service";
const NEEDRESTART = "/etc/needrestart/conf.d/vivarium.conf";
const STATE = ["--property=ActiveState", "--value", "vivarium"];
const client = ownClient();
await untilHealthy(client);
const { session_id } = await client.sessions.create({ name: "over-restarts" });
const session = client.session(session_id);
await shell(session, "head -c 1048576 /dev/urandom >/dev/shm/noise");
const facts = "sha256sum /dev/shm/noise; cat /proc/sys/kernel/random/boot_id";
const before = await shell(session, facts);

systemctl("restart", "vivarium");
await untilHealthy(client);
expectEqual(await shell(session, facts), before, "the machine after a restart of the unit");

const mainPid = mainPidOf("vivarium");
if (!(mainPid > 1)) throw new Error("vivarium.service has no main process");
process.kill(mainPid, "SIGKILL");
// Until systemd ends them, the other processes of the old service answer.
while (mainPidOf("vivarium") === mainPid || systemctl("show", ...STATE).trim() !== "active")
  await sleep(1_000);
await untilHealthy(client);
expectEqual(await shell(session, facts), before, "the machine after the death of the main process");

for (const verb of ["restart", "try-restart", "stop"]) {
  const { status, stderr } = spawnSync("systemctl", [verb, MACHINES_UNIT], { encoding: "utf8" });
  if (status === 0) throw new Error(`systemctl ${verb} ${MACHINES_UNIT} is not refused`);
  console.log(stderr.trim());
}
if (!readFileSync(NEEDRESTART, "utf8").includes("override_rc"))
  throw new Error(`${NEEDRESTART} has no override_rc`);
expectEqual(await shell(session, facts), before, "the machine after restarts that were refused");
await client.sessions.delete(session_id);
console.log("the machine ran on");

function mainPidOf(unit: string): number {
  return Number(systemctl("show", "--property=MainPID", "--value", unit));
}

function systemctl(...words: string[]): string {
  return execFileSync("systemctl", words, { encoding: "utf8" });
}
