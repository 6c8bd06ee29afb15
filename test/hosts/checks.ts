/** The checks of a host as users have it, in their order: each check finds the host as the one before left it. */
import { readdirSync, writeFileSync } from "node:fs";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describeDifferences, differencesOf } from "./census.ts";
import type { Finished, Host, HostDisks } from "./host.ts";
import { cutPowerOften } from "./power-cuts.ts";

const PACKAGES = readdirSync(path.join(import.meta.dirname, "../../packages")).toSorted();
const MINUTE_MS = 60_000;
const RELEASED = "/var/tmp/vivarium-released";
const UNIT_FILE = "/etc/systemd/system/vivarium.service";
/** Keeps the downloads of set-up from `--data`, since the host has no network. */
const UNINSTALL_BUT_CACHE =
  "mv /mnt/vivarium/cache /mnt/vivarium/kept && ./viv uninstall --data --yes </dev/null && mv /mnt/vivarium/kept /mnt/vivarium/cache && ln -sfn /mnt/vivarium/cache /root/.cache/vivarium";
/** The counting of the host before its set-up, on the host. */
export const COUNTED_BEFORE = "/var/tmp/counted-before";
/** The pool is not mounted after a boot, unless the service starts by itself. Does nothing on a host that is not set up yet. */
const MOUNT_AGAIN = "[ ! -e /var/lib/vivarium/pool.img ] || scripts/mount-pool";
/** Data directories of the services that tests start, each with its logs. */
const TEST_SERVICES = "/var/lib/vivarium/pool/tests";
/** Prints the end of each of these logs, and what the kernel said. */
const PRINT_LOGS = `for file in ${TEST_SERVICES}/*.log ${TEST_SERVICES}/*/log/*; do [ ! -f "$file" ] || { echo "== $file"; tail -c 300000 "$file"; }; done; echo "== dmesg"; dmesg | tail -n 300`;
/** Set-up's cache, and where it is while a boot has none. */
const CACHE = "/mnt/vivarium/cache";
const CACHE_AWAY = "/mnt/vivarium/cache-away";
const NEEDRESTART = "/etc/needrestart/conf.d/vivarium.conf";
const LOOKS = 10;
const BETWEEN_LOOKS_MS = 3_000;
/** How often a part of a check is run again. */
const DEATHS = 3;
/** Settings of every command: the certificates that its base template was built with, and what the one before compiled. */
const SETTINGS =
  "HOME=/root VIV_CA_BUNDLE=/mnt/vivarium/certificates.pem NO_COLOR=1 CI=true VIV_TEST_SLOWNESS=10 NODE_COMPILE_CACHE=/var/tmp/compiled";
const IN_PROJECT = `cd /mnt/vivarium/project && export ${SETTINGS} && `;

export interface Check {
  name: string;
  /** The property that the check shows, as a sentence. */
  shows: string;
  /** How many times it does so. */
  times?: number;
  run(tools: CheckTools, times: number, first: number): Promise<void>;
}

export interface CheckTools {
  host: Host;
  /** Folder for what this run writes, with the host's disks. */
  folder: string;
  disks: HostDisks;
  /**
   * Runs a command in the project's folder; throws with its output when it fails or is not over in time. `seen` is called
   * with the output as it comes.
   */
  command(text: string, minutes: number, seen?: (text: string) => void): Promise<string>;
  /** Runs a part of a check that can be run again when the host itself has died in it. */
  part(run: () => Promise<void>): Promise<void>;
}

/** Makes the tools of the checks; `show` gets the output of every command as it comes. */
export function toolsFor(
  place: Pick<CheckTools, "host" | "folder" | "disks">,
  show: (text: string) => void,
): CheckTools {
  const { host } = place;
  const command: CheckTools["command"] = async (text, minutes, seen) => {
    const { code, output } = await host.run(IN_PROJECT + text, {
      limitMs: minutes * MINUTE_MS,
      show: (chunk) => {
        show(chunk);
        seen?.(chunk);
      },
    });
    if (code === 0) return output;
    throw new Error(describeFailure(text, minutes, { code, output }));
  };
  const part: CheckTools["part"] = async (run) => {
    for (let deaths = 0; ; ) {
      try {
        return await run();
      } catch (error) {
        const death = await host.death();
        if (death === undefined || ++deaths > DEATHS) throw error;
        show(`The host itself has died (${death}): it is booted, and this part of the check runs again.\n`);
        await host.boot();
        await command(MOUNT_AGAIN, 5);
      }
    }
  };
  return { ...place, command, part };
}

/** Lines that describe how a command failed, with the end of its output. */
function describeFailure(text: string, minutes: number, { code, output }: Finished): string {
  const how = code === null ? `was not over after ${minutes} minutes` : `ended with code ${code}`;
  return `${text}\n${how}; the end of its output:\n${output.trimEnd().split("\n").slice(-30).join("\n")}`;
}

const vitest = (project: string, files: string[]) =>
  `scripts/with-node node_modules/vitest/vitest.mjs run --project ${project} ${files.join(" ")}`;

const e2e = (name: string, minutes: number): Check => ({
  name: `e2e-${name}`,
  shows: `test/e2e/${name}.test.ts passes`,
  async run({ command, host, folder }) {
    const project = name.startsWith("network") ? "network" : "e2e";
    await command(`rm -rf --one-file-system ${TEST_SERVICES}`, 5);
    try {
      await command(`VIV_TEST_KEEP=1 ${vitest(project, [`test/e2e/${name}.test.ts`])}`, minutes);
    } catch (error) {
      await keepLogs({ host, folder }, name);
      throw error;
    }
    await command(`rm -rf --one-file-system ${TEST_SERVICES}`, 5);
  },
});

/** Copies the logs of a test's services into the run's folder, which remains after a failure. */
async function keepLogs({ host, folder }: Pick<CheckTools, "host" | "folder">, name: string): Promise<void> {
  if (host.isOff) return;
  const { output } = await host.run(PRINT_LOGS, { limitMs: 5 * MINUTE_MS });
  writeFileSync(path.join(folder, `e2e-${name}.logs`), output);
}

/** In parts, so that a death of the emulated host costs one of them, and parts can run by themselves. */
const unit = (name: string, folder: string): Check => ({
  name: `unit-${name}`,
  shows: `the tests without machines in ${folder} pass`,
  async run({ command }) {
    await command(`scripts/in-own-network ${vitest("unit", [folder])}`, 240);
  },
});

export const CHECKS: Check[] = [
  {
    name: "first-command",
    shows: "the README's first command sets the host up and runs a program in a machine",
    async run({ command }) {
      expectText(
        await command("./viv run examples/hello.py </dev/null", 60),
        /hello/i,
        "the program's output",
      );
    },
  },
  {
    name: "kvm",
    shows: "machines run under KVM",
    async run({ command }) {
      expectText(
        await command("curl -sS http://127.0.0.1:7400/v1/healthz", 2),
        /"isolation":"kvm"/,
        "healthz",
      );
    },
  },
  {
    name: "doctor",
    shows: "viv doctor has no finding",
    async run({ command }) {
      const { checks } = JSON.parse(await command("./viv doctor --json", 10)) as {
        checks: { name: string; status: string; found: string }[];
      };
      const findings = checks.filter(({ status }) => status !== "ok");
      if (findings.length > 0)
        throw new Error(findings.map(({ name, status, found }) => `${status}: ${name}: ${found}`).join("\n"));
    },
  },
  {
    name: "leaks",
    shows: "sessions, 20 at once, leave nothing behind when they are deleted",
    times: 200,
    async run({ command }, times) {
      // Machines kept warm come and go by demand.
      await command("./viv down && VIV_WARM_MACHINES=0 ./viv up --background", 10);
      await command(`scripts/with-node test/hosts/make-and-delete.ts --sessions ${times} --at-once 20`, 240);
    },
  },
  {
    name: "pauses",
    shows: "a pause and a wake keep the memory of a session and its clock",
    times: 25,
    async run({ command }, times) {
      await command(`scripts/with-node test/hosts/pause-and-wake.ts --rounds ${times}`, 90);
    },
  },
  {
    name: "clock-jump",
    shows: "a jump of the host's clock reaches its guests, and not their monotonic clock",
    async run({ command }) {
      await command("scripts/with-node test/hosts/clock.ts set", 30);
    },
  },
  {
    name: "suspend",
    shows: "sessions of a host that was suspended to memory continue, with the right time",
    async run({ command }) {
      await command("scripts/with-node test/hosts/clock.ts suspend", 30);
    },
  },
  {
    name: "kvm-module",
    shows: "a KVM module that is taken away fails starts with the reason, and nothing else",
    async run({ command }) {
      await command("./viv down && VIV_WARM_MACHINES=0 ./viv up --background", 10);
      await command("scripts/with-node test/hosts/kvm-module.ts", 30);
    },
  },
  {
    name: "down",
    shows: "viv down stops the service, and leaves no unit of it",
    async run({ command }) {
      await command("./viv down && ! systemctl is-active vivarium-machines.service", 10);
    },
  },
  ...PACKAGES.map((name) => unit(name, `packages/${name}/`)),
  unit("test", "test/"),
  e2e("jail", 40),
  e2e("sessions", 40),
  e2e("lifecycle", 90),
  e2e("warm-pool", 40),
  e2e("guest-dies", 60),
  e2e("host-faults", 60),
  e2e("full-disk", 60),
  e2e("cgroup-limits", 60),
  e2e("cpu-model", 60),
  e2e("network-egress", 60),
  {
    name: "install",
    shows: "viv install makes the service a unit of systemd that answers",
    async run({ command }) {
      await command("./viv install </dev/null", 60);
      expectText(await command("systemctl is-active vivarium", 2), /^active$/m, "the unit's state");
      await command("systemd-analyze security vivarium --no-pager | tail -n 1", 5);
    },
  },
  {
    name: "restarts",
    shows:
      "a live machine runs on while the unit is restarted, while its main process is killed, and while a package update would restart all units",
    async run({ command }) {
      await command("scripts/with-node test/hosts/restarts.ts", 60);
    },
  },
  {
    name: "renewal",
    shows:
      "a boot with another QEMU renews the baseline from what the pool has, without a cache and a network",
    async run({ host, command, part }) {
      const isAway = `[ -e ${CACHE_AWAY} ]`;
      await part(async () => {
        await command(`${isAway} || mv ${CACHE} ${CACHE_AWAY}; mkdir -p ${CACHE}`, 5);
        // Its time is an input of every baseline.
        await command("touch /usr/bin/qemu-system-x86_64", 2);
        await host.reboot(30 * MINUTE_MS);
        await command(`! ${isAway} || { rm -rf ${CACHE} && mv ${CACHE_AWAY} ${CACHE}; }`, 5);
        const journal = await command("journalctl --boot --unit vivarium --output cat --no-pager", 5);
        expectText(journal, /^Renewed after/m, "what the unit's start logged");
        await command("./viv run examples/hello.py </dev/null", 60);
      });
    },
  },
  {
    name: "unmounted",
    shows:
      "a service whose data disk is not mounted at boot says so and writes nothing; once it is mounted, all is there",
    async run({ host, command, part }) {
      const script = "scripts/with-node test/hosts/unmounted.ts";
      await part(async () => {
        await command(`${script} prepare`, 90);
        await host.reboot(30 * MINUTE_MS);
        await command(`${script} check`, 60);
        await command(`${script} remove`, 30);
      });
    },
  },
  {
    name: "reinstall",
    shows: "an uninstall without --data and a new install keep sessions, checkpoints and settings",
    async run({ command, part }) {
      await part(async () => {
        await command(`[ -e ${UNIT_FILE} ] || ./viv install </dev/null`, 60);
        await command("scripts/with-node test/hosts/before-reboot.ts", 30);
        await command("./viv uninstall --pause </dev/null", 40);
        const left = `${UNIT_FILE} /etc/systemd/system/vivarium-machines.service ${NEEDRESTART}`;
        await command(
          `for file in ${left}; do [ ! -e "$file" ] || { echo "$file is left"; exit 1; }; done`,
          2,
        );
        await command("./viv install </dev/null", 60);
        await command("scripts/with-node test/hosts/after-reboot.ts", 60);
      });
    },
  },
  {
    name: "released",
    shows: "the last released version installs on a host that has none",
    async run({ command }) {
      await command(`[ ! -e ${UNIT_FILE} ] || { ${UNINSTALL_BUT_CACHE}; }`, 20);
      const tag = "$(git describe --tags --abbrev=0 --match 'v*')";
      await command(`rm -rf ${RELEASED} && git clone -q --branch "${tag}" . ${RELEASED}`, 10);
      await command(
        `ln -s "$PWD/node_modules" ${RELEASED}/node_modules && ${RELEASED}/viv install </dev/null`,
        60,
      );
    },
  },
  {
    name: "update",
    shows:
      "an update by viv install keeps every session, and one that fails leaves the version of before serving, under load",
    times: 10,
    async run({ command, part }, times, first) {
      for (let round = first; round <= times; round++)
        await part(async () => {
          await command(`scripts/with-node test/hosts/update-often.ts --round ${round}`, 120);
        });
    },
  },
  {
    name: "reboots",
    shows:
      "after a reboot the service answers by itself, and sessions that were live or paused wake with their memory",
    times: 25,
    async run({ host, command, part }, times) {
      for (let round = 1; round <= times; round++)
        await part(async () => {
          await command("scripts/with-node test/hosts/before-reboot.ts", 30);
          await host.reboot(30 * MINUTE_MS);
          await command("scripts/with-node test/hosts/after-reboot.ts", 60);
        });
    },
  },
  {
    name: "power-cuts",
    shows:
      "a power cut loses nothing that was acknowledged as durable, and the service answers by itself after it",
    times: 25,
    async run(tools, times) {
      await cutPowerOften(tools, times);
    },
  },
  {
    name: "uninstall",
    shows: "viv uninstall --data leaves the host as it was before set-up, counted from outside",
    async run({ command }) {
      await command("./viv uninstall --data --yes </dev/null", 10);
      await requireAsBefore(command);
    },
  },
];

/** Compares the host with the counting that was taken before set-up. */
async function requireAsBefore(command: CheckTools["command"]): Promise<void> {
  const before = await command(`cat ${COUNTED_BEFORE}`, 2);
  let found: string[] = [];
  // systemd takes units and groups away a moment after their last process.
  for (let look = 1; look <= LOOKS; look++) {
    found = differencesOf(before, await command("test/hosts/census", 10));
    if (found.length === 0) return;
    await sleep(BETWEEN_LOOKS_MS);
  }
  throw new Error(describeDifferences(found));
}

function expectText(text: string, wanted: RegExp, what: string): void {
  if (!wanted.test(text)) throw new Error(`${what} does not match ${wanted}:\n${text.trimEnd()}`);
}
