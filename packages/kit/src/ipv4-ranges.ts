/** Ranges of IPv4 addresses, `a.b.c.d/n`; a single address is a range with n = 32. */
import { isIPv4 } from "node:net";

/** Reads ranges separated by commas. `name` is the setting that an error names. */
export function readRanges(name: string, text: string): string[] {
  const parts = text.split(",").map((part) => part.trim());
  return parts.filter((part) => part !== "").map((part) => readRange(name, part));
}

/** Throws on anything else than a range: a misread one would leave addresses open that it should close. */
function readRange(name: string, range: string): string {
  const [address = "", bits = "32", ...rest] = range.split("/");
  const isRange =
    isIPv4(address) && /^\d{1,2}$/.test(bits) && Number(bits) >= 1 && Number(bits) <= 32 && rest.length === 0;
  if (isRange) return `${address}/${Number(bits)}`;
  throw new Error(
    `${name} names "${range}"; expected IPv4 addresses and ranges with commas between, such as 8.8.4.4,8.8.8.0/24`,
  );
}

/** The first range that contains an address. */
export function findRange(ranges: readonly string[], address: string): string | undefined {
  return ranges.find((range) => {
    const [network = "", bits] = range.split("/");
    const size = 2 ** (32 - Number(bits));
    return Math.floor(numberOf(address) / size) === Math.floor(numberOf(network) / size);
  });
}

/** The first range that has an address in common with the given one. */
export function findOverlap(ranges: readonly string[], range: string): string | undefined {
  return ranges.find((other) => contains(other, addressOf(range)) || contains(range, addressOf(other)));
}

/** The range without these addresses: itself, or the largest ranges that are left of it. */
export function without(range: string, addresses: readonly string[]): string[] {
  if (!addresses.some((address) => contains(range, address))) return [range];
  const bits = bitsOf(range) + 1;
  if (bits > 32) return [];
  const first = networkOf(range);
  const second = textOf(numberOf(first) + 2 ** (32 - bits));
  return [first, second].flatMap((half) => without(`${half}/${bits}`, addresses));
}

/** The first address of a range. */
export function networkOf(range: string): string {
  const size = 2 ** (32 - bitsOf(range));
  return textOf(Math.floor(numberOf(addressOf(range)) / size) * size);
}

export function bitsOf(range: string): number {
  return Number(range.split("/")[1]);
}

function contains(range: string, address: string): boolean {
  return findRange([range], address) !== undefined;
}

function addressOf(range: string): string {
  return range.split("/")[0] as string;
}

function numberOf(address: string): number {
  return address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
}

function textOf(number: number): string {
  return [24, 16, 8, 0].map((shift) => Math.floor(number / 2 ** shift) % 256).join(".");
}
