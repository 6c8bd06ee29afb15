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

function numberOf(address: string): number {
  return address.split(".").reduce((sum, part) => sum * 256 + Number(part), 0);
}
