/** Reads the addresses of a name out of a name server's answer, following aliases (CNAME records). */
import { type Answer, decode, type StringAnswer } from "dns-packet";

const MAX_ALIASES = 16;

export interface Addresses {
  /** All addresses of the last alias. */
  addresses: string[];
  /** The last alias, or the name itself. The name to ask for next when there are no addresses. */
  end: string;
  /** The shortest TTL of all records that were followed, in seconds. */
  ttlS: number;
}

/** Throws on an answer that cannot be read. */
export function readAddresses(answer: Buffer, name: string): Addresses {
  const records = decode(answer).answers ?? [];
  let end = name;
  let ttlS = Number.MAX_SAFE_INTEGER;
  for (let aliases = 0; aliases < MAX_ALIASES; aliases += 1) {
    const alias = records.find((record) => record.type === "CNAME" && isOwner(record, end));
    if (alias?.type !== "CNAME") break;
    end = lower(alias.data);
    ttlS = Math.min(ttlS, alias.ttl ?? 0);
  }
  const found = records.filter(isAddress).filter((record) => isOwner(record, end));
  for (const { ttl } of found) ttlS = Math.min(ttlS, ttl ?? 0);
  return { addresses: found.map(({ data }) => data), end, ttlS };
}

/** Every IPv4 address in the answer, and whether it has HTTPS or SVCB records, which can hide a TLS server name. */
export function readAll(answer: Buffer): { addresses: string[]; hasServiceBindings: boolean } {
  const { answers = [], authorities = [], additionals = [] } = decode(answer);
  const records = [...answers, ...authorities, ...additionals];
  return {
    addresses: records.filter(isAddress).map(({ data }) => data),
    hasServiceBindings: records.some(({ type }) => /^(HTTPS|SVCB|UNKNOWN_6[45])$/.test(type)),
  };
}

function isAddress(record: Answer): record is StringAnswer & { type: "A" } {
  return record.type === "A";
}

function isOwner(record: Answer, name: string): boolean {
  return lower(record.name) === name;
}

function lower(name: string): string {
  return name.toLowerCase().replace(/\.$/, "");
}
