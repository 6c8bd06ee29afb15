/** References of images, `[host[:port]/]path[:tag][@digest]`, read as `docker pull` reads them. */
import { isIPv4 } from "node:net";
import { isDigest } from "./digest.ts";
import { RegistryError } from "./registry-error.ts";

export interface Reference {
  /** The registry as it is named: `docker.io`, `ghcr.io`, `registry.example.com:5000`. Lower case. */
  registry: string;
  /** `library/debian` for Docker Hub's official images. */
  repository: string;
  /** Absent only beside a digest. */
  tag?: string;
  /** Counts before the tag. */
  digest?: string;
}

const FORM = "expected [host[:port]/]path[:tag][@sha256:…], such as debian:13 or ghcr.io/owner/app:1.2";
export const DOCKER_HUB = "docker.io";
/** Docker Hub's names. Its interface is at the last one. */
const HUB_NAMES = [DOCKER_HUB, "index.docker.io", "registry.hub.docker.com", "registry-1.docker.io"];
const HUB_API = "registry-1.docker.io";
const MAX_LENGTH = 1_024;
const MAX_REPOSITORY = 255;
const MAX_HOST = 253;
const LABEL = /^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$/;
const COMPONENT = /^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*$/;
const TAG = /^\w[\w.-]{0,127}$/;

export function parseReference(text: string): Reference {
  // In front of an @ there may be a password.
  const shown = text.replace(/^.*@(?!sha)/s, "…@").slice(0, 200);
  const refuse = (why: string) => new RegistryError("bad_reference", `"${shown}" ${why}; ${FORM}`);
  if (text.length > MAX_LENGTH) throw refuse(`is longer than ${MAX_LENGTH} characters`);
  if (/[^\x21-\x7e]/.test(text)) throw refuse("has spaces or characters outside of ASCII");
  if (text.includes("://")) throw refuse("has a scheme");
  const [named = "", digest, ...more] = text.split("@");
  if (more.length > 0 || digest?.includes("/")) throw refuse("has a user");
  if (digest !== undefined && !isDigest(digest)) throw refuse("has no digest after its @");
  const { registry, rest } = splitRegistry(named, refuse);
  const colon = rest.indexOf(":");
  const path = colon < 0 ? rest : rest.slice(0, colon);
  const tag = colon < 0 ? undefined : rest.slice(colon + 1);
  if (tag !== undefined && !TAG.test(tag)) throw refuse("has a malformed tag");
  const repository = registry === DOCKER_HUB && path !== "" && !path.includes("/") ? `library/${path}` : path;
  checkRepository(repository, refuse);
  return {
    registry,
    repository,
    ...(tag !== undefined && { tag }),
    ...(digest !== undefined && { digest }),
    ...(tag === undefined && digest === undefined && { tag: "latest" }),
  };
}

/** The part before the first slash is a registry only if it cannot be a folder of Docker Hub. */
function splitRegistry(named: string, refuse: (why: string) => Error): { registry: string; rest: string } {
  const slash = named.indexOf("/");
  const first = named.slice(0, Math.max(slash, 0));
  const isRegistry = isUnmistakable(first);
  if (!isRegistry) return { registry: DOCKER_HUB, rest: named };
  const registry = normalRegistry(first);
  if (registry === undefined) throw refuse("has a malformed host");
  return { registry, rest: named.slice(slash + 1) };
}

function isUnmistakable(registry: string): boolean {
  return /[.:]/.test(registry) || registry.toLowerCase() === "localhost";
}

function checkRepository(repository: string, refuse: (why: string) => Error): void {
  if (repository === "") throw refuse("has no path");
  if (repository.length > MAX_REPOSITORY)
    throw refuse(`has a path of more than ${MAX_REPOSITORY} characters`);
  if (/[A-Z]/.test(repository)) throw refuse("has capital letters in its path");
  const components = repository.split("/");
  if (!components.every((one) => COMPONENT.test(one))) throw refuse("has a malformed path");
  if (isDigest(`sha256:${components.at(-1)}`)) throw refuse("is a bare digest");
}

/**
 * The one name of a registry, `host` or `host:port`: lower case, without the port of HTTPS, Docker Hub's names as one.
 * Undefined for what is not a host. Credentials are compared by it.
 */
export function normalRegistry(text: string): string | undefined {
  const [host = "", port, ...more] = text.toLowerCase().split(":");
  if (more.length > 0 || (port !== undefined && !isPort(port)) || !isHost(host)) return undefined;
  const isDefault = port === undefined || (port === "443" && isUnmistakable(host));
  const registry = isDefault ? host : `${host}:${port}`;
  return HUB_NAMES.includes(registry) ? DOCKER_HUB : registry;
}

function isPort(text: string): boolean {
  return /^[1-9][0-9]{0,4}$/.test(text) && Number(text) <= 65_535;
}

/** A last label of digits makes a number, which URL parsers read as an address in many forms: only the usual one passes. */
function isHost(host: string): boolean {
  const labels = host.split(".");
  if (host.length > MAX_HOST || !labels.every((label) => LABEL.test(label))) return false;
  return isIPv4(host) || !/^(\d+|0x[0-9a-f]*)$/.test(labels.at(-1) ?? "");
}

/** `host` or `host:port` that serves a registry's interface. */
export function apiHostOf(registry: string): string {
  return registry === DOCKER_HUB ? HUB_API : registry;
}

/** Tag or digest by which the manifest is asked for. */
export function manifestName({ tag, digest }: Reference): string {
  return digest ?? tag ?? "latest";
}

/** The reference in full, with the digest to which it was resolved. */
export function textOfReference({ registry, repository, tag, digest }: Reference): string {
  return `${registry}/${repository}${tag === undefined ? "" : `:${tag}`}${digest === undefined ? "" : `@${digest}`}`;
}
