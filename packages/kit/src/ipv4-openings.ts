/**
 * Openings: TCP ports of private IPv4 addresses that a setting opens, `a.b.c.d:port` and `a.b.c.d/n:port`, separated by
 * commas.
 */
import { isIPv4 } from "node:net";
import { bitsOf, findOverlap, findRange, networkOf, without } from "./ipv4-ranges.ts";

export interface Opening {
  /** `a.b.c.d/n`; n = 32 for a single address. */
  range: string;
  port: number;
}

export interface OpeningRules {
  /** An opening lies in one of these ranges. */
  openable: readonly string[];
  /** An opening has no address in common with one of these. */
  closed: readonly string[];
  closedPorts: readonly number[];
}

const FORM =
  "expected IPv4 addresses and ranges, each with a port, with commas between, such as 10.1.2.3:443,10.2.0.0/24:8080";

/** Reads openings, each once. `name` is the setting that an error names. */
export function readOpenings(name: string, text: string, rules: OpeningRules): Opening[] {
  const items = text.split(",").map((item) => item.trim());
  const openings = items
    .filter((item) => item !== "")
    .map((item) => readOpening((why) => new Error(`${name} names "${item}"${why}`), item, rules));
  return openings.filter((one, index) => !openings.some((other, at) => isPartOf(one, other, at < index)));
}

/** Throws on everything that could be read in two ways, opens nothing, or opens what is to stay closed. */
function readOpening(refusal: (why: string) => Error, item: string, rules: OpeningRules): Opening {
  const [place = "", portText, ...rest] = item.split(":");
  if (rest.length > 0) throw refusal(", which is not IPv4; nothing else can be opened");
  const [address = "", bitsText = "32", ...more] = place.split("/");
  if (!isIPv4(address)) {
    const isName = /[a-z]/i.test(address);
    throw refusal(isName ? ", a name, which may change its address; name the address itself" : `; ${FORM}`);
  }
  if (more.length > 0 || !/^([1-9]|[12][0-9]|3[0-2])$/.test(bitsText)) throw refusal(`; ${FORM}`);
  if (portText === undefined) throw refusal(`, which has no port; ${FORM}`);
  const port = Number(portText);
  if (!/^[1-9][0-9]{0,4}$/.test(portText) || port > 65_535)
    throw refusal("; a port is a whole number from 1 to 65535 without leading zeros");
  const range = `${address}/${bitsText}`;
  const network = networkOf(range);
  if (network !== address)
    throw refusal(`, which is not the first address of its range; write ${network}/${bitsText}`);
  refuseClosed(refusal, { range, port }, rules);
  return { range, port };
}

function refuseClosed(
  refusal: (why: string) => Error,
  { range, port }: Opening,
  { openable, closed, closedPorts }: OpeningRules,
): void {
  const overlap = findOverlap(closed, range);
  if (overlap !== undefined) throw refusal(`, which has addresses of ${overlap}; these are never opened`);
  const around = findOverlap(openable, range);
  if (around === undefined) throw refusal(", which is public; public addresses need no opening");
  if (bitsOf(range) < bitsOf(around))
    throw refusal(`, which is more than ${around}; only private addresses are opened`);
  if (closedPorts.includes(port))
    throw refusal(`; the ports ${closedPorts.join(" and ")} are closed or redirected at every address`);
}

/** Whether another item opens the same. Of two equal ones, the first counts. */
function isPartOf(one: Opening, other: Opening, isEarlier: boolean): boolean {
  if (one.port !== other.port || one === other) return false;
  if (one.range === other.range) return isEarlier;
  return bitsOf(one.range) > bitsOf(other.range) && findOverlap([other.range], one.range) !== undefined;
}

/**
 * Takes this host's own addresses out of openings. An opening of such an address alone is refused: it would never open
 * anything.
 */
export function withoutOwn(name: string, openings: readonly Opening[], own: readonly string[]): Opening[] {
  const alone = openings.find(({ range }) => own.some((address) => range === `${address}/32`));
  if (alone)
    throw new Error(
      `${name} names "${textOfOpening(alone)}", an address of this host, which is never opened; take it out`,
    );
  return openings.flatMap(({ range, port }) => without(range, own).map((left) => ({ range: left, port })));
}

/** Whether a port of this address is open, or, without a port, any. */
export function isOpen(openings: readonly Opening[], address: string, port?: number): boolean {
  return openings.some(
    (opening) =>
      (port === undefined || opening.port === port) && findRange([opening.range], address) !== undefined,
  );
}

/** An opening as it is written in a setting. */
export function textOfOpening({ range, port }: Opening): string {
  return `${range.replace(/\/32$/, "")}:${port}`;
}
