/**
 * Checks the operator's settings that have a grammar of their own before any process of the service starts. The error is
 * then the answer of `viv up`, and not a line in a log.
 */
import { lookup } from "node:dns/promises";
import { readFile } from "node:fs/promises";
import path from "node:path";
import { OPENING_RULES } from "@vivarium/contract/gateway";
import { parseGuestSettings } from "@vivarium/contract/guest";
import { ipv4AddressesOfHost } from "@vivarium/kit/host-addresses";
import { isOpen, type Opening, readOpenings, withoutOwn } from "@vivarium/kit/ipv4-openings";
import { readRanges } from "@vivarium/kit/ipv4-ranges";
import { messageOf } from "@vivarium/kit/unknown-error";
import { readS3Settings } from "@vivarium/objects/s3-settings";
import { type ConnectionOptions, parse } from "pg-connection-string";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";

const POSTGRES_PORT = 5432;

type Settings = Pick<CliConfig, "childEnv"> & Partial<Pick<CliConfig, "databaseUrl">>;

export async function checkSettings({ childEnv, databaseUrl }: Settings): Promise<void> {
  const open = orCliError(() => privateOpenOf(childEnv));
  if (open.length > 0 && databaseUrl !== undefined) await refuseOpenDatabase(open, databaseUrl);
  orCliError(() => readS3Settings(childEnv));
  await checkGuestSettings(childEnv.VIV_GUEST_SETTINGS);
}

/** The private addresses that sessions may reach, without those of this host. */
export function privateOpenOf(childEnv: Record<string, string>): Opening[] {
  const never = readRanges("VIV_NEVER_RANGES", childEnv.VIV_NEVER_RANGES ?? "");
  const rules = { ...OPENING_RULES, closed: [...OPENING_RULES.closed, ...never] };
  const open = readOpenings("VIV_PRIVATE_OPEN", childEnv.VIV_PRIVATE_OPEN ?? "", rules);
  return withoutOwn("VIV_PRIVATE_OPEN", open, ipv4AddressesOfHost());
}

function orCliError<T>(read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw new CliError(messageOf(cause), { cause });
  }
}

/** A database elsewhere may have an address in an opened range. An address that cannot be found is control's to report. */
async function refuseOpenDatabase(open: Opening[], databaseUrl: string): Promise<void> {
  for (const { host, port } of databasesOf(databaseUrl)) {
    const found = await lookup(host, { family: 4, all: true }).catch(() => []);
    const reached = found.find(({ address }) => isOpen(open, address, port));
    if (reached === undefined) continue;
    throw new CliError(
      `VIV_PRIVATE_OPEN opens ${reached.address}:${port}, where this service has its database`,
      { hint: "Open single addresses instead of that range." },
    );
  }
}

/** The servers of a connection string, read as control's client does, without a directory that holds a socket. */
function databasesOf(databaseUrl: string): { host: string; port: number }[] {
  const { host, port } = readConnection(databaseUrl);
  const hosts = (host ?? "").split(",").filter((name) => name !== "" && !name.startsWith("/"));
  const ports = (port ?? "").split(",");
  return hosts.map((name, index) => ({
    host: name,
    port: Number(ports[index] || ports[0] || POSTGRES_PORT),
  }));
}

function readConnection(databaseUrl: string): ConnectionOptions {
  try {
    return parse(databaseUrl);
  } catch {
    // Its text may hold a password.
    throw new CliError(
      "DATABASE_URL cannot be read, so VIV_PRIVATE_OPEN might open the database to sessions",
      {
        hint: "Write it as postgres://user:password@host:port/name.",
      },
    );
  }
}

async function checkGuestSettings(file: string | undefined): Promise<void> {
  if (!file) return;
  if (!path.isAbsolute(file))
    throw new CliError(
      `VIV_GUEST_SETTINGS is "${file}"; expected an absolute path, such as /etc/vivarium/guest.json`,
    );
  try {
    parseGuestSettings(await readFile(file, "utf8"));
  } catch (cause) {
    throw new CliError(`VIV_GUEST_SETTINGS: ${file}: ${messageOf(cause)}`, {
      hint: "docs/operate/on-premises.md shows such a file.",
      cause,
    });
  }
}
