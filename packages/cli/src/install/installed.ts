/** The units that `viv install` has written on this host, and whether another one can be added. */
import { readdir, readFile } from "node:fs/promises";
import path from "node:path";
import { MACHINES_UNIT } from "@vivarium/contract/node";
import { CliError, UsageError } from "../cli-error.ts";
import { DEFAULT_LISTEN } from "../config.ts";
import { DEFAULT_INGRESS_LISTEN } from "../supervisor/address.ts";
import { collide } from "./collide.ts";
import { isSameDir } from "./directories.ts";
import { readSettings, type Settings } from "./settings-file.ts";
import { UNITS_DIR, unitKnown } from "./systemd.ts";
import { readUnit } from "./unit-text.ts";

export const DEFAULT_NAME = "vivarium";
/** File in the data directory to which an uninstall moves the settings, and from which the next install takes them. */
export const SETTINGS_IN_DATA = "settings.env";
const SETTINGS_DIR = "/etc/vivarium";

export interface Installed {
  name: string;
  unitFile: string;
  settingsFile: string;
  dataDir: string;
  settings: Settings;
  /** The copy that it runs. */
  copy?: string | undefined;
}

/** Paths of a unit of this name. */
export function placesOf(name: string): { unitFile: string; settingsFile: string } {
  return {
    unitFile: path.join(UNITS_DIR, `${name}.service`),
    settingsFile: path.join(SETTINGS_DIR, `${name}.env`),
  };
}

/** A name that is a unit's, and is not taken by what all services share. */
export function parseUnitName(text: string): string {
  const isName = /^[a-z][a-z0-9-]{0,30}$/.test(text) && `${text}.service` !== MACHINES_UNIT;
  if (isName) return text;
  throw new UsageError(
    `--name is "${text}"; expected a-z, 0-9 and -, at most 31 characters, and not vivarium-machines`,
  );
}

export async function listInstalled(): Promise<Installed[]> {
  const names = (await readdir(UNITS_DIR).catch(() => [])).filter((name) => name.endsWith(".service"));
  const found = await Promise.all(names.map((name) => readInstalled(name.slice(0, -".service".length))));
  return found.filter((one) => one !== undefined);
}

async function readInstalled(name: string): Promise<Installed | undefined> {
  const places = placesOf(name);
  const { dataDir, copy } = readUnit(await readFile(places.unitFile, "utf8").catch(() => "")) ?? {};
  if (dataDir === undefined) return undefined;
  const settings = readSettings(await readFile(places.settingsFile, "utf8").catch(() => ""));
  return { name, ...places, dataDir, settings, copy };
}

/** The addresses at which a service with these settings listens. */
export function addressesOf(settings: Settings): { listen: string; ingress: string } {
  return {
    listen: settings.VIV_LISTEN || DEFAULT_LISTEN,
    ingress: settings.VIV_INGRESS_LISTEN || DEFAULT_INGRESS_LISTEN,
  };
}

export interface Wanted {
  name: string;
  dataDir: string;
  settings: Settings;
}

/** An install over a unit that another package brought would override it. */
function checkName(name: string): void {
  if (name.endsWith("-update"))
    throw new UsageError(
      `--name is "${name}"; names that end in -update are those of the units that run updates`,
    );
  const { unitFile } = placesOf(name);
  const { isKnown, file } = unitKnown(name);
  if (!isKnown || file === unitFile) return;
  throw new CliError(`systemd has a ${name}.service that viv install did not write${file && `: ${file}`}`, {
    hint: "Choose another name with --name.",
  });
}

/** Refuses a name, a data directory or an address that another unit has. `foreign`: a unit file that is not ours. */
export function checkFree(wanted: Wanted, installed: readonly Installed[], foreign: boolean): void {
  const { name, dataDir } = wanted;
  const { unitFile } = placesOf(name);
  checkName(name);
  if (foreign)
    throw new CliError(`${unitFile} was not written by viv install`, {
      hint: "Choose another name with --name, or remove the file.",
    });
  const same = installed.find((one) => one.name === name);
  if (same && same.dataDir !== dataDir)
    throw new CliError(`${name}.service serves ${same.dataDir}, not ${dataDir}`, {
      hint: `Choose another name with --name, or remove it first: viv uninstall --name ${name}`,
    });
  const others = installed.filter((one) => one.name !== name);
  const sharing = others.find((one) => isSameDir(one.dataDir, dataDir));
  if (sharing)
    throw new CliError(`${sharing.name}.service serves ${dataDir} already`, {
      hint: `Choose another --data-dir, or install over it: --name ${sharing.name}`,
    });
  checkAddresses(wanted, others);
}

function checkAddresses({ settings }: Wanted, others: readonly Installed[]): void {
  const own = addressesOf(settings);
  if (own.listen === own.ingress) throw new UsageError(`both addresses are ${own.listen}; they must differ`);
  if (collide(own.listen, own.ingress))
    throw new UsageError(
      `the addresses ${own.listen} and ${own.ingress} have one port, and one includes the other`,
    );
  for (const other of others) {
    const theirs = Object.values(addressesOf(other.settings));
    const options = { listen: "--listen", ingress: "--ingress-listen" } as const;
    for (const kind of ["listen", "ingress"] as const) {
      const taken = theirs.find((address) => collide(address, own[kind]));
      if (taken === undefined) continue;
      const reason = taken === own[kind] ? "" : `, and ${own[kind]} has the same port there`;
      throw new CliError(`${other.name}.service listens at ${taken}${reason}`, {
        hint: `Choose another address for this one with ${options[kind]} HOST:PORT.`,
      });
    }
  }
}
