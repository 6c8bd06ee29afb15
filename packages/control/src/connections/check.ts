/** Rules for Connections of a request beyond their schema. Pure. */
import { LIMITS, type ParsedConnectionCreate } from "@vivarium/contract/api";
import type { OwnHosts, StoredPolicy } from "../egress/entry.ts";
import { invalidField } from "../http/validation.ts";
import { hostOf, isCovered } from "./origin.ts";
import { checkTotals } from "./totals.ts";

const DEFAULT_TTL_S = 3_600;

/** A Connection as it is stored, with its credential in the clear. */
export interface NewConnection {
  name: string;
  host: string;
  authType: "bearer" | "header";
  headerName: string;
  secret: string;
  methods: string[];
  paths: string[];
  ttlS: number;
  /** The time that the request named; null if it named none. */
  askedTtlS: number | null;
}

interface Against {
  policy: StoredPolicy;
  ownHosts: OwnHosts;
  /** Seconds until the session's lifetime is over; undefined: it has no end. */
  remainingS: number | undefined;
}

/** `at` is what precedes a field's name: `connections[0].`, or nothing. */
export function checkConnection(body: ParsedConnectionCreate, against: Against, at = ""): NewConnection {
  const { authentication: auth, allow } = body;
  const host = hostOf(body.origin, against.ownHosts, `${at}origin`);
  if (!isCovered(against.policy, host))
    throw invalidField(
      `${at}origin`,
      `must be allowed by the session's egress policy; add ${host} to its allow list`,
    );
  return {
    name: body.name,
    host,
    authType: auth.type,
    headerName: (auth.type === "header" && auth.header_name) || "Authorization",
    secret: auth.secret,
    methods: [...new Set(allow.methods)],
    paths: [...new Set(allow.paths)],
    ttlS: ttlOf(body, against, at),
    askedTtlS: body.ttl_seconds ?? null,
  };
}

/** The Connections of a create: each has a name and a host of its own. */
export function checkConnections(
  bodies: readonly ParsedConnectionCreate[],
  against: Against,
): NewConnection[] {
  const checked = bodies.map((body, index) => checkConnection(body, against, `connections[${index}].`));
  for (const [index, one] of checked.entries()) {
    const { name, host } = one;
    const earlier = checked.slice(0, index);
    const at = `connections[${index}]`;
    if (earlier.some((known) => known.name === name))
      throw invalidField(`${at}.name`, "must differ from the names of the other Connections");
    if (earlier.some((known) => known.host === host))
      throw invalidField(`${at}.origin`, "must differ from the origins of the other Connections");
    checkTotals(earlier, one, `${at}.`);
  }
  return checked;
}

function ttlOf({ ttl_seconds: asked }: ParsedConnectionCreate, { remainingS }: Against, at: string): number {
  const most = Math.min(remainingS ?? LIMITS.connectionTtlS, LIMITS.connectionTtlS);
  if (asked == null) return remainingS === undefined ? DEFAULT_TTL_S : Math.max(1, most);
  if (asked > most)
    throw invalidField(
      `${at}ttl_seconds`,
      `must be at most ${most}, the session's remaining lifetime`,
      asked,
    );
  return asked;
}
