/**
 * A second service whose data directory is on a disk of its own, which nothing mounts at boot: `unmounted.ts prepare`, then a
 * reboot, then `unmounted.ts check`, which mounts it, and `unmounted.ts remove`.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { expectEqual, ownClient, shell, untilHealthy } from "./inside.ts";

const UNIT = "apart";
const DATA_DIR = "/srv/apart";
const URL = "http://127.0.0.1:7500";
const DISK = "/var/tmp/apart.img";
const DISK_GIB = 24;
const NOTE = "/var/tmp/apart.json";
const MARKS = "/etc/vivarium/data";
const REFUSED_WITHIN_MS = 600_000;
const VIV = "./viv";

const STEPS: Record<string, () => Promise<void>> = { prepare, check, remove };
const step = STEPS[process.argv[2] ?? ""];
if (!step) throw new Error(`expected one of ${Object.keys(STEPS).join(", ")}`);
await step();

async function prepare(): Promise<void> {
  await remove();
  run("truncate", "--size", `${DISK_GIB}G`, DISK);
  run("mkfs.xfs", "-q", "-m", "reflink=1", DISK);
  mount();
  const addresses = ["--listen", "127.0.0.1:7500", "--ingress-listen", "127.0.0.1:7501"];
  run(VIV, "install", "--name", UNIT, "--data-dir", DATA_DIR, ...addresses);
  const client = ownClient({ dataDir: DATA_DIR, url: URL });
  await untilHealthy(client);
  const { session_id } = await client.sessions.create({ name: "apart" });
  const session = client.session(session_id);
  await shell(session, "head -c 1048576 /dev/urandom >/dev/shm/noise");
  const sum = await shell(session, "sha256sum /dev/shm/noise");
  await client.sessions.pause(session_id);
  writeFileSync(NOTE, JSON.stringify({ session_id, sum }));
  console.log(`${session_id} is paused, on a disk that nothing mounts at boot`);
}

async function check(): Promise<void> {
  expectEqual(isMounted(), false, "whether the disk is mounted after the boot");
  await untilRefused();
  expectEqual(readdirSync(DATA_DIR), [], `what is in ${DATA_DIR} without its disk`);
  const { status, stdout } = spawnSync(VIV, ["doctor", "--json", "--data-dir", DATA_DIR], {
    encoding: "utf8",
  });
  const { checks } = JSON.parse(stdout) as { checks: { name: string; status: string }[] };
  expectEqual(
    [status, checks.find(({ name }) => name === "data")?.status],
    [1, "fail"],
    "the word of viv doctor",
  );
  expectEqual(readdirSync(DATA_DIR), [], `what is in ${DATA_DIR} after viv doctor`);
  mount();
  // The unit is tried again by itself.
  const { session_id, sum } = JSON.parse(readFileSync(NOTE, "utf8")) as { session_id: string; sum: string };
  const client = ownClient({ dataDir: DATA_DIR, url: URL });
  await untilHealthy(client);
  expectEqual((await client.sessions.get(session_id)).state, "paused", "the session on the mounted disk");
  expectEqual(await shell(client.session(session_id), "sha256sum /dev/shm/noise"), sum, "its memory");
  await client.sessions.delete(session_id);
  console.log("the service came back with the disk, and its session with its memory");
}

/** Also what an attempt left that was broken off. */
async function remove(): Promise<void> {
  if (existsSync(DISK) && !isMounted()) mount();
  if (existsSync(`/etc/systemd/system/${UNIT}.service`))
    run(VIV, "uninstall", "--name", UNIT, "--data", "--yes");
  if (isMounted()) run("umount", DATA_DIR);
  for (const place of [DATA_DIR, DISK, NOTE]) rmSync(place, { recursive: true, force: true });
  expectEqual(existsSync(MARKS), false, `whether ${MARKS} is left`);
}

async function untilRefused(): Promise<void> {
  const deadline = Date.now() + REFUSED_WITHIN_MS;
  const reason = `${DATA_DIR} is in use, and its data is not there`;
  for (;;) {
    const log = run("journalctl", "--boot", "--unit", UNIT, "--output", "cat", "--no-pager");
    if (log.includes(reason)) return;
    if (Date.now() > deadline) throw new Error(`${UNIT}.service does not say "${reason}":\n${log}`);
    await sleep(1_000);
  }
}

function mount(): void {
  mkdirSync(DATA_DIR, { recursive: true });
  run("mount", "-o", "loop", DISK, DATA_DIR);
}

function isMounted(): boolean {
  return spawnSync("mountpoint", ["-q", DATA_DIR]).status === 0;
}

function run(program: string, ...args: string[]): string {
  return execFileSync(program, args, { encoding: "utf8", stdio: ["ignore", "pipe", "inherit"] });
}
