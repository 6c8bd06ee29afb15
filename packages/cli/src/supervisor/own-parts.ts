/**
 * Parts of the service that may be on other hosts, at private addresses: its database, its object store, and where clients
 * reach it. Sessions never reach them, whatever private addresses the operator opens.
 */
import { lookup } from "node:dns/promises";
import { isOpen, type Opening } from "@vivarium/kit/ipv4-openings";
import { messageOf } from "@vivarium/kit/unknown-error";
import { readS3Settings } from "@vivarium/objects/s3-settings";
import { type ConnectionOptions, parse } from "pg-connection-string";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";

const POSTGRES_PORT = 5432;
/** An address of IPv4 in the form of IPv6, as URLs have it and as name servers may. */
const MAPPED = /^::ffff:(?:([\d.]+)|([0-9a-f]{1,4}):([0-9a-f]{1,4}))$/i;

export type ServiceSettings = Pick<CliConfig, "childEnv"> & Partial<Pick<CliConfig, "databaseUrl">>;

interface OwnPart {
  what: string;
  /** The setting that names it. */
  setting: string;
  host: string;
  port: number;
  /** False: its name need not be known here, as only clients use it. */
  isUsedHere: boolean;
}

/**
 * Throws if an opening has the address and port of a part, or if the name of one that the service uses has no address yet:
 * it may get one that is open.
 */
export async function refuseOpenParts(open: readonly Opening[], settings: ServiceSettings): Promise<void> {
  if (open.length === 0) return;
  for (const part of ownParts(settings)) {
    const reached = (await addressesOf(part)).find((address) => isOpen(open, address, part.port));
    if (reached === undefined) continue;
    throw new CliError(
      `VIV_PRIVATE_OPEN opens ${reached}:${part.port}, where this service has ${part.what} (${part.setting})`,
      { hint: "Open single addresses instead of that range." },
    );
  }
}

/** Openings are of IPv4 alone. */
async function addressesOf({ host, setting, isUsedHere }: OwnPart): Promise<string[]> {
  try {
    return (await lookup(host, { all: true })).map(({ address }) => unmapped(address));
  } catch (cause) {
    if (!isUsedHere) return [];
    throw new CliError(
      `the address of ${host} (${setting}) cannot be found, so VIV_PRIVATE_OPEN might open it to sessions: ${messageOf(cause)}`,
      { hint: "Start again once the name is known, or name the address itself.", cause },
    );
  }
}

function unmapped(address: string): string {
  const [, dotted, high, low] = MAPPED.exec(address) ?? [];
  if (dotted !== undefined) return dotted;
  if (high === undefined || low === undefined) return address;
  const bytes = [high, low]
    .map((part) => Number.parseInt(part, 16))
    .flatMap((part) => [part >> 8, part & 255]);
  return bytes.join(".");
}

function ownParts({ childEnv, databaseUrl }: ServiceSettings): OwnPart[] {
  return [
    ...(databaseUrl === undefined ? [] : databasesOf(databaseUrl)),
    ...objectStoreOf(childEnv),
    ...publicAddressOf(childEnv.VIV_PUBLIC_URL),
  ];
}

/** The servers of a connection string, read as control's client does, without a directory that holds a socket. */
function databasesOf(databaseUrl: string): OwnPart[] {
  const { host, port } = readConnection(databaseUrl);
  const hosts = (host ?? "").split(",").filter((name) => name !== "" && !name.startsWith("/"));
  const ports = (port ?? "").split(",");
  return hosts.map((name, index) => ({
    what: "its database",
    setting: "DATABASE_URL",
    host: bare(name),
    port: Number(ports[index] || ports[0] || POSTGRES_PORT),
    isUsedHere: true,
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

/** Also AWS may be at private addresses, of an endpoint in the operator's own network. */
function objectStoreOf(childEnv: Record<string, string>): OwnPart[] {
  const settings = readS3Settings(childEnv);
  if (!settings) return [];
  const { bucket, region, isPathStyle, endpoint = `https://s3.${region}.amazonaws.com` } = settings;
  const { hostname, port } = addressIn(endpoint);
  return [
    {
      what: "its object store",
      setting: childEnv.VIV_OBJECTS_ENDPOINT ? "VIV_OBJECTS_ENDPOINT" : "VIV_OBJECTS",
      host: isPathStyle ? hostname : `${bucket}.${hostname}`,
      port,
      isUsedHere: true,
    },
  ];
}

function publicAddressOf(url: string | undefined): OwnPart[] {
  if (!url || !URL.canParse(url)) return [];
  const { hostname: host, port } = addressIn(url);
  return [{ what: "its interface for clients", setting: "VIV_PUBLIC_URL", host, port, isUsedHere: false }];
}

function addressIn(text: string): { hostname: string; port: number } {
  const { hostname, port, protocol } = new URL(text);
  return { hostname: bare(hostname), port: Number(port || (protocol === "http:" ? 80 : 443)) };
}

/** An address of IPv6 without the brackets that it has in a URL. */
const bare = (host: string) => host.replace(/^\[(.*)\]$/, "$1");
