/** The result of one check of a host. */
export interface Finding {
  name: string;
  /** ok; warn: sessions run, at a cost; fail: sessions cannot run. */
  status: "ok" | "warn" | "fail";
  found: string;
  /** The consequence, unless ok. */
  cost?: string;
  /** Advice to the operator. */
  remedy?: string;
}

export function ok(name: string, found: string): Finding {
  return { name, status: "ok", found };
}

/** A finding with which sessions still run. */
export function warn(name: string, found: string, cost: string, remedy?: string): Finding {
  return { name, status: "warn", found, cost, remedy };
}

/** A finding with which no session runs. */
export function fail(name: string, found: string, cost: string, remedy?: string): Finding {
  return { name, status: "fail", found, cost, remedy };
}

/** The remedy for a check that this user may not run. */
export const AS_ROOT = "Run viv doctor as root.";
