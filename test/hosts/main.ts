/**
 * Runs Vivarium on hosts as users have them: Debian with systemd, cgroup v2 and KVM, each inside an emulated machine.
 *
 *   scripts/with-node test/hosts/main.ts [--release trixie]... [--only CHECK[=[FIRST-]TIMES]]... [--times N]
 *       [--processors N] [--keep] [--quiet]
 *
 * Prints each check with what it shows, its time, and why it failed. A host is built and set up once for each commit, and
 * saved while it runs, in ~/.cache/vivarium/hosts; each run continues it. `--times` bounds how often a check repeats itself.
 * `--only update=5-5` begins with the fifth round, of which each is of another kind.
 * Ends with exit code 1 if a check failed.
 */
import { appendFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import path from "node:path";
import { parseArgs } from "node:util";
import { CHECKS, type Check, type CheckTools, COUNTED_BEFORE, toolsFor } from "./checks.ts";
import { continued, type Release, runFolder, savedHost } from "./disks.ts";
import { Host, type HostDisks, machineArguments } from "./host.ts";

const RELEASES: Release[] = ["trixie", "bookworm"];
const { values } = parseArgs({
  options: {
    release: { type: "string", multiple: true },
    only: { type: "string", multiple: true },
    times: { type: "string", default: "200" },
    processors: { type: "string", default: "2" },
    keep: { type: "boolean", default: false },
    quiet: { type: "boolean", default: false },
  },
});
const releases = RELEASES.filter((name) => values.release?.includes(name) ?? true);
const machine = machineArguments(Number(values.processors));
/** The checks that were asked for, all of them if empty, with how often each repeats itself. */
const only = new Map((values.only ?? []).map((one) => one.split("=") as [name: string, times: string]));
const checks = CHECKS.filter(({ name }) => only.size === 0 || only.has(name));
refuseUnknown("--release", values.release, RELEASES);
refuseUnknown(
  "--only",
  [...only.keys()],
  CHECKS.map(({ name }) => name),
);

let failed = 0;
for (const release of releases) failed += await checkOn(release);
console.log(failed === 0 ? "All checks passed." : `${failed} checks failed.`);
process.exitCode = failed === 0 ? 0 : 1;

async function checkOn(release: Release): Promise<number> {
  const started = Date.now();
  const folder = runFolder(release);
  say(release, "building and setting up the host, if this commit's is not there yet");
  const saved = await savedHost(release, machine, (disks, saveTo) => setUp(release, disks, saveTo));
  const disks = await continued(folder, saved);
  const host = new Host(disks, machine);
  let failures = 0;
  try {
    await host.boot();
    say(release, `up after ${seconds(started)}; what its commands print: ${path.join(folder, "log")}`);
    for (const check of checks) if (!(await passes({ release, host, folder, disks }, check))) failures++;
  } finally {
    await host.cutPower();
    if (failures === 0 && !values.keep) await rm(folder, { recursive: true, force: true });
  }
  return failures;
}

/** Boots a host that was just built, sets it up as the README says, and saves it. */
async function setUp(release: Release, disks: HostDisks, saveTo: string): Promise<void> {
  const host = new Host(disks, machine);
  const started = Date.now();
  try {
    say(release, "its disks are built; booting");
    await host.boot();
    say(release, `booted after ${seconds(started)}; setting it up`);
    const show = (text: string) => void (values.quiet || process.stdout.write(text));
    const { command } = toolsFor({ host, disks, folder: path.dirname(saveTo) }, show);
    // The last check compares with it.
    await command(`test/hosts/census >${COUNTED_BEFORE}`, 10);
    await command("./setup </dev/null", 60);
    await host.save(saveTo);
    say(release, `set up and saved after ${seconds(started)}`);
  } finally {
    await host.cutPower();
  }
}

interface Place extends Pick<CheckTools, "host" | "folder" | "disks"> {
  release: Release;
}

async function passes(place: Place, check: Check): Promise<boolean> {
  const { release, folder } = place;
  const started = Date.now();
  const show = (text: string) => {
    appendFileSync(path.join(folder, "log"), text);
    if (!values.quiet) process.stdout.write(text);
  };
  const [last = "", first = "1"] = (only.get(check.name) ?? values.times).split("-").reverse();
  const times = Math.min(check.times ?? 1, Number(last));
  const shows = times > 1 ? `${check.shows} (${times} times)` : check.shows;
  show(`\n== ${check.name}: ${shows}\n`);
  try {
    const tools = toolsFor(place, show);
    await tools.part(() => check.run(tools, times, Number(first)));
    say(release, `ok    ${check.name} (${seconds(started)}): ${shows}`);
    return true;
  } catch (error) {
    say(release, `FAILED ${check.name} (${seconds(started)}): ${shows}\n${String(error)}`);
    return false;
  }
}

function refuseUnknown(option: string, wanted: string[] | undefined, known: string[]): void {
  const unknown = wanted?.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new Error(`${option} ${unknown}: expected one of ${known.join(", ")}`);
}

function say(release: Release, text: string): void {
  console.log(`[${release}] ${text}`);
}

function seconds(since: number): string {
  return `${Math.round((Date.now() - since) / 1000)} s`;
}
