/**
 * What `viv uninstall` removes from a host, as a list of steps in their order. Each step looks whether its thing is
 * there, so the list can be run again after a failure, and on a host where parts are missing.
 */
import { existsSync } from "node:fs";
import { mkdir, readdir, readFile, rm, rmdir, stat } from "node:fs/promises";
import path from "node:path";
import { findAccount } from "@vivarium/kit/account";
import { writeDurably } from "@vivarium/kit/durable-file";
import { runHostCommand } from "@vivarium/kit/host-command";
import { endMark, markOf } from "../supervisor/data-in-use.ts";
import { removeHostTable } from "../supervisor/host-settings.ts";
import { GATEWAY_USER, SERVICE_USER } from "../supervisor/service-user.ts";
import { RESTORE_JOURNAL } from "../supervisor/unfinished-restore.ts";
import { emptyPlace, isInside } from "./directories.ts";
import { SETTINGS_IN_DATA } from "./installed.ts";
import { hasMachinesUnit, MACHINES_UNIT_FILE, removeMachinesUnit } from "./machines-unit.ts";
import { hasNeedrestart, removeNeedrestart } from "./needrestart.ts";
import { disown, disownStore, isOwnedStore, ownedBy } from "./ownership.ts";
import { OWN_GROUP, removeGroups, removeSlots, slotsOf } from "./slot-remains.ts";

export interface Removal {
  name: string;
  unitFile: string;
  settingsFile: string;
  dataDir: string;
  /** Whether the data goes too. */
  withData: boolean;
  /** Whether no other service of this host needs what all services share. */
  isLast: boolean;
  /** Copies of the versions that the unit ran. */
  copiesDir: string;
  /** Directories with builds of set-up: that of the caller, and that of the unit's settings. */
  cacheDirs: readonly string[];
  /** Directory of the object store, if that is in one. */
  objectsDir?: string | undefined;
}

export interface Step {
  what: string;
  isThere: () => Promise<boolean> | boolean;
  remove: () => Promise<unknown>;
}

/** Everything that the service and set-up put into a data directory. Anything else in it is left. */
const DATA = [
  ...["control", "postgres", "objects", "pool", "qemu-root", "log", "run"],
  ...["pool.img", "pool.img.part", "previews.json", "previews.json.tmp"],
  ...["setup.stamp", "ca-bundle", "ca-bundle.pem", "cpu-model", "data-id", SETTINGS_IN_DATA],
  `${SETTINGS_IN_DATA}.tmp`,
  ...[RESTORE_JOURNAL, `${RESTORE_JOURNAL}.tmp`],
];
/** By these an uninstall knows a data directory (own-data-dir.ts). */
const SIGNS = ["control", "setup.stamp"];
/** Names that set-up makes in its cache. The directory may be one that the operator chose, with other things in it. */
const CACHE = [
  ...["agent", "base", "cargo-target", "certificates", "gifts", "initramfs", "kernel", "shell"],
  ...["official-templates", "recipe", "renewed"],
  ...["setup.explanation", "setup.lock", "setup.log", "setup.worked"],
];
/** Keys that a restore kept, and the parts of a backup or restore that was killed. */
const KEPT_ASIDE = /^(control\.before-restore-\d+|\.viv-backup-\d+-\d+[a-z-]*)$/;
/** Names that the service and a backup make in the directory of the object store. */
const IN_STORE = /^(objects|incoming|uploads|\.viv-backup-\d+-\d+[a-z-]*)$/;
const BACKPORTS = "/etc/apt/sources.list.d/vivarium-backports.list";
/** Name in the directory of copies (update/update-lock.ts). */
const UPDATE_LOCK = "update.lock";
const RUN_DIR = "/run/vivarium";

export function stepsOf(removal: Removal): Step[] {
  const { dataDir, withData, isLast } = removal;
  return [
    ...unitSteps(removal),
    copiesStep(removal.copiesDir),
    {
      what: `slots, namespaces, links and groups of machines of ${dataDir}`,
      isThere: async () => (await slotsOf(dataDir)).length > 0,
      remove: async () => removeSlots(await slotsOf(dataDir)),
    },
    ...(isLast ? sharedSteps() : []),
    {
      what: `mount of the pool at ${dataDir}/pool`,
      isThere: async () => (await run("mountpoint", "-q", path.join(dataDir, "pool"))).code === 0,
      remove: () => must("umount", path.join(dataDir, "pool")),
    },
    fileStep(path.join(dataDir, "run")),
    ...(withData ? [] : [disownStep(dataDir)]),
    ...disownStoreSteps(removal),
    ...(isLast ? [GATEWAY_USER, SERVICE_USER].map(userStep) : []),
    ...(withData ? [...storeSteps(removal), ...dataSteps(removal)] : []),
    ...(withData && isLast ? [...removal.cacheDirs.map(cacheStep), fileStep(BACKPORTS)] : []),
  ];
}

/** The lock of updates stays until the uninstall gives it up, which removes the directory: no install may begin meanwhile. */
function copiesStep(dir: string): Step {
  const others = async () => (await readdir(dir).catch(() => [])).filter((name) => name !== UPDATE_LOCK);
  return {
    what: dir,
    isThere: async () => (await others()).length > 0,
    remove: async () => {
      for (const name of await others()) await rm(path.join(dir, name), { recursive: true, force: true });
    },
  };
}

function unitSteps({ name, unitFile, settingsFile, dataDir, withData, isLast }: Removal): Step[] {
  return [
    {
      what: `unit ${unitFile}`,
      isThere: () => existsSync(unitFile),
      remove: async () => {
        await must("systemctl", "disable", "--now", "--quiet", `${name}.service`);
        await rm(unitFile);
        await rm(`${unitFile}.d`, { recursive: true, force: true });
        await must("systemctl", "daemon-reload");
        await run("systemctl", "reset-failed", `${name}.service`);
      },
    },
    {
      what: withData
        ? `settings ${settingsFile}`
        : `settings ${settingsFile}, kept as ${dataDir}/${SETTINGS_IN_DATA}`,
      isThere: () => existsSync(settingsFile),
      remove: async () => {
        if (!withData) await copyDurably(settingsFile, path.join(dataDir, SETTINGS_IN_DATA));
        await rm(settingsFile, { force: true });
        await rmdir(path.dirname(settingsFile)).catch(() => {});
      },
    },
    ...(isLast
      ? [
          {
            what: `unit ${MACHINES_UNIT_FILE}`,
            isThere: () => hasMachinesUnit(),
            remove: () => removeMachinesUnit(),
          },
        ]
      : []),
  ];
}

/** Steps that remove what all services of a host share. */
function sharedSteps(): Step[] {
  return [
    {
      what: "configuration of needrestart",
      isThere: () => hasNeedrestart(),
      remove: () => removeNeedrestart(),
    },
    {
      what: "nft table inet vivarium, and the host's settings that nodes changed",
      isThere: async () => (await run("nft", "list", "table", "inet", "vivarium")).code === 0,
      remove: async () => {
        const { code, stderr } = await removeHostTable();
        if (code !== 0) throw new Error(`nft delete table inet vivarium: ${stderr.trim()}`);
      },
    },
    {
      what: `cgroup ${OWN_GROUP}`,
      isThere: () => existsSync(OWN_GROUP),
      remove: () => removeGroups(OWN_GROUP),
    },
    fileStep(RUN_DIR),
  ];
}

/** A store in the data directory goes with it, wherever a link or a mount leads. */
function storeSteps({ dataDir, objectsDir = path.join(dataDir, "objects") }: Removal): Step[] {
  if (!isInside(objectsDir, dataDir)) return [];
  const ours = async () => (await readdir(objectsDir).catch(() => [])).filter((name) => IN_STORE.test(name));
  const isEmptyDir = async () =>
    existsSync(objectsDir) &&
    (await emptyPlace(objectsDir)) === undefined &&
    (await readdir(objectsDir).catch(() => ["?"])).length === 0;
  return [
    {
      what: `files of artifacts in ${objectsDir}`,
      isThere: async () => (await ours()).length > 0 || (await isEmptyDir()),
      remove: async () => {
        for (const name of await ours()) await rm(path.join(objectsDir, name), { recursive: true });
        if (await isEmptyDir()) await rmdir(objectsDir);
      },
    },
  ];
}

/** As `disownStep`, also behind a link. One outside of the data directory may be used by another service. */
function disownStoreSteps({ dataDir, objectsDir, withData }: Removal): Step[] {
  if (objectsDir === undefined || withData || !isInside(objectsDir, dataDir)) return [];
  return [
    {
      what: `rights of the service's users to files of artifacts in ${objectsDir}, which are root's now`,
      isThere: async () => isOwnedStore(objectsDir, await usersOfService()),
      remove: async () => disownStore(objectsDir, await usersOfService()),
    },
  ];
}

const usersOfService = async () => [
  ...new Set(await Promise.all([GATEWAY_USER, SERVICE_USER].map(findAccount))),
];

/**
 * The users go with the last service, and a later user of the host may get their numbers: what they own would be that
 * one's. The next start gives it back (supervisor/layout.ts).
 */
function disownStep(dataDir: string): Step {
  return {
    what: `rights of the service's users to keys and database in ${dataDir}, which are root's now`,
    isThere: async () => (await ownedBy(dataDir, await usersOfService())).length > 0,
    remove: async () => disown(dataDir, await usersOfService()),
  };
}

/** A user that set-up did not make, as an operator may have, has a home or a shell, and is left. */
function userStep(user: string): Step {
  const isOurs = async () => {
    const { stdout } = await run("getent", "passwd", user);
    const [, , , , , home, shell] = stdout.trim().split(":");
    return home === "/nonexistent" && shell === "/usr/sbin/nologin";
  };
  return { what: `user ${user}`, isThere: isOurs, remove: () => must("userdel", user) };
}

function dataSteps({ dataDir }: Removal): Step[] {
  return [
    // First: a mark without its data would refuse a repetition.
    {
      what: `mark that ${dataDir} is in use on a disk of its own`,
      isThere: async () => (await markOf(dataDir)) !== undefined,
      remove: () => endMark(dataDir),
    },
    {
      what: `data in ${dataDir}`,
      isThere: async () => (await ourData(dataDir)).length > 0,
      remove: async () => {
        for (const name of await ourData(dataDir)) await rm(path.join(dataDir, name), { recursive: true });
      },
    },
    {
      what: `directory ${dataDir}`,
      isThere: async () => existsSync(dataDir) && (await emptyPlace(dataDir)) === undefined,
      // Fails, and says so, if anything else is in it.
      remove: () => rmdir(dataDir),
    },
  ];
}

/** Names in a data directory that are the service's. Last those by which a repeated uninstall knows the directory. */
export async function ourData(dataDir: string): Promise<string[]> {
  const names = await readdir(dataDir).catch(() => []);
  const ours = names.filter((name) => DATA.includes(name) || KEPT_ASIDE.test(name));
  return ours.toSorted((a, b) => SIGNS.indexOf(a) - SIGNS.indexOf(b));
}

export function cacheStep(cacheDir: string): Step {
  const ours = () => CACHE.map((name) => path.join(cacheDir, name)).filter((file) => existsSync(file));
  return {
    what: `builds of set-up in ${cacheDir}`,
    isThere: () => ours().length > 0,
    remove: async () => {
      for (const file of ours()) await rm(file, { recursive: true });
      await rmdir(cacheDir).catch(() => {});
    },
  };
}

function fileStep(file: string): Step {
  return {
    what: file,
    isThere: () => existsSync(file),
    remove: () => rm(file, { recursive: true, force: true }),
  };
}

/** Copies a file, also to another filesystem. It is on disk there before anybody removes the first one. */
async function copyDurably(source: string, target: string): Promise<void> {
  await mkdir(path.dirname(target), { recursive: true });
  await writeDurably(target, await readFile(source), (await stat(source)).mode & 0o777);
}

const run = (command: string, ...args: string[]) => runHostCommand(command, args, { timeoutMs: 300_000 });

async function must(command: string, ...args: string[]): Promise<void> {
  const { code, stderr } = await run(command, ...args);
  if (code !== 0) throw new Error(`${command} ${args.join(" ")}: ${stderr.trim() || `exit code ${code}`}`);
}
