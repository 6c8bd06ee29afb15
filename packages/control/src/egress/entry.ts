/**
 * Parses the entries of an egress policy (docs/spec/network.md) into the form that the gateway compares with. Refuses
 * text that two parsers could read in two ways. Pure.
 */
import { domainToASCII, domainToUnicode } from "node:url";
import { type EgressPolicy, LIMITS } from "@vivarium/contract/api";
import { NEVER_RANGES } from "@vivarium/contract/gateway";
import { isOpen, type Opening } from "@vivarium/kit/ipv4-openings";
import { findRange } from "@vivarium/kit/ipv4-ranges";
import { getPublicSuffix } from "tldts";
import { invalidField } from "../http/validation.ts";
import { DNS_OVER_HTTPS, ECH_FRONTS } from "./bypass-names.ts";

/** Names and addresses of this deployment. No policy may list them. */
export interface OwnHosts {
  names: readonly string[];
  addresses: readonly string[];
  /** IPv4 ranges, `a.b.c.d/n`, that the operator closes to all sessions. */
  ranges: readonly string[];
  /** Private addresses that a policy may list, because the operator opened a port of them. */
  open: readonly Opening[];
}

const FORM = "must be host, host:port, *.host, *.host:port, IPv4 or IPv4:port";
const NUMBERS =
  "must be an IPv4 address as four decimal numbers, or a host name that does not end in a number";

/** A policy as it is stored: normalised entries without duplicates. */
export interface StoredPolicy {
  mode: EgressPolicy["mode"];
  allow: string[];
}

/** Throws for the first invalid entry. `field` is the name of the list in the caller's body. */
export function normalPolicy({ mode, allow = [] }: EgressPolicy, own: OwnHosts, field: string): StoredPolicy {
  const entries = allow.map((text, index) => {
    const parsed = parseEntry(text, own);
    if ("reason" in parsed) throw invalidField(`${field}[${index}]`, parsed.reason, text);
    return parsed.entry;
  });
  return { mode, allow: [...new Set(entries)] };
}

export function parseEntry(text: string, own: OwnHosts): { entry: string } | { reason: string } {
  try {
    return { entry: normalise(text, own) };
  } catch (error) {
    if (error instanceof NotAnEntry) return { reason: error.message };
    throw error;
  }
}

class NotAnEntry extends Error {}

function refuse(reason: string): never {
  throw new NotAnEntry(reason);
}

function normalise(text: string, own: OwnHosts): string {
  checkCharacters(text);
  const { host, port } = splitPort(text);
  const suffix = port === undefined ? "" : `:${port}`;
  if (isDottedQuad(host)) return checkedAddress(host, port, own) + suffix;
  if (!host.startsWith("*.")) return checkedName(normalName(host), own) + suffix;
  const base = normalName(host.slice(2), { isBase: true });
  checkWide(base);
  return `*.${checkedName(base, own, { isBase: true })}${suffix}`;
}

function checkCharacters(text: string): void {
  if ([...text].length > LIMITS.egressEntryChars)
    refuse(`must be at most ${LIMITS.egressEntryChars} characters`);
  if (!text.isWellFormed()) refuse("must be valid Unicode");
  if (/[\s\p{Cc}\p{Cf}\p{Zs}]|\p{Default_Ignorable_Code_Point}/u.test(text))
    refuse("must not contain spaces, control or invisible characters");
  if (text === "*") refuse('would allow every host; use mode "allow" for that');
  if (/^[0-9.]+\/[0-9]+$/.test(text)) refuse("must be a single address; ranges are not accepted");
  if (/[/\\?#@%]/.test(text)) refuse(`${FORM}, without scheme, path or user`);
  if (text.includes("[") || text.split(":").length > 2)
    refuse("must not be an IPv6 address; guests have none");
}

function splitPort(text: string): { host: string; port?: string } {
  const [host = "", port] = text.split(":");
  if (port === undefined) return { host };
  if (!/^[1-9][0-9]{0,4}$/.test(port) || Number(port) > 65_535)
    refuse("the port must be a whole number from 1 to 65535 without leading zeros");
  return { host, port };
}

/** Whether the host is four decimal numbers, the only form of an IPv4 address that all parsers read alike. */
function isDottedQuad(host: string): boolean {
  const parts = host.split(".");
  return (
    parts.length === 4 && parts.every((part) => /^(0|[1-9][0-9]{0,2})$/.test(part) && Number(part) <= 255)
  );
}

function checkedAddress(address: string, port: string | undefined, own: OwnHosts): string {
  if (own.addresses.includes(address)) refuse("is this service's own address, which is never reachable");
  const range = findRange([...NEVER_RANGES, ...own.ranges], address);
  if (range === undefined || isOpen(own.open, address, port === undefined ? undefined : Number(port)))
    return address;
  if (isOpen(own.open, address))
    refuse(`is a private address of which the operator did not open port ${port}`);
  refuse(`lies in ${range}, which is private, reserved or closed by the operator, and never reachable`);
}

const LABEL = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/;

function normalName(given: string, { isBase = false } = {}): string {
  if (given.includes("*")) refuse(`${FORM}; a wildcard is the whole first label`);
  const host = (isAscii(given) ? given.toLowerCase() : toALabels(given)).replace(/\.$/, "");
  const labels = host.split(".");
  if (host === "" || labels.includes("")) refuse("must not have an empty label");
  if (/^([0-9]+|0x[0-9a-f]*)$/.test(labels.at(-1) ?? "")) refuse(NUMBERS);
  if (host.length > 253) refuse("must be at most 253 characters as a host name");
  if (!labels.every((label) => LABEL.test(label)))
    refuse("each label must be 1 to 63 of a-z, 0-9, _ and hyphens, with no hyphen at its ends");
  if (labels.some((label) => label.startsWith("xn--") && domainToUnicode(label) === label))
    refuse("has a label that is no valid internationalised name");
  if (labels.length === 1 && !isBase) refuse("must have at least two labels");
  return host;
}

/**
 * Converts an internationalised name to ASCII (`xn--`). Refuses look-alikes of ASCII (full-width digits, ligatures,
 * other full stops), which would become a name that the writer did not see.
 */
function toALabels(given: string): string {
  const isLookAlike = [...given].some((character) => {
    if (isAscii(character)) return false;
    return /[\p{ASCII}\u3002]/u.test(character.normalize("NFKC"));
  });
  if (isLookAlike) refuse("must not contain look-alikes of letters, digits or full stops");
  const host = domainToASCII(given);
  if (host === "" || !isAscii(host)) refuse("is no valid internationalised name");
  return host;
}

function isAscii(text: string): boolean {
  return /^\p{ASCII}*$/u.test(text);
}

/** Refuses a wildcard below a suffix under which anyone can register a name. */
function checkWide(base: string): void {
  const isSuffix = getPublicSuffix(base, { allowPrivateDomains: false, validateHostname: false }) === base;
  if (isSuffix || !base.includes("."))
    refuse("is too wide: it ends in a public suffix that anybody can register under");
}

const LOCAL = ["localhost", "local"];
const BYPASSES = [...DNS_OVER_HTTPS, ...ECH_FRONTS];

function checkedName(host: string, own: OwnHosts, { isBase = false } = {}): string {
  if (LOCAL.some((name) => isAtOrBelow(host, name))) refuse("is a local name, which is never reachable");
  const overlaps = (name: string) => isAtOrBelow(host, name) || (isBase && isAtOrBelow(name, host));
  if (own.names.some(overlaps)) refuse("is this service's own name, which is never reachable");
  const bypass = BYPASSES.find(overlaps);
  if (bypass !== undefined)
    refuse(
      `would bypass name checks: ${bypass} answers DNS over HTTPS or hides the names of what is behind it`,
    );
  return host;
}

function isAtOrBelow(host: string, name: string): boolean {
  return host === name || host.endsWith(`.${name}`);
}
