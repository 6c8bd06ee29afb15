/** Result of one check of a host. */
export interface Finding {
  name: string;
  /** ok; warn: works, at a cost; fail: sessions cannot run. */
  status: "ok" | "warn" | "fail";
  found: string;
  /** The consequence of the lack. */
  cost?: string;
  /** The advice. */
  remedy?: string;
}

export function ok(name: string, found: string): Finding {
  return { name, status: "ok", found };
}

/** A lack that sessions run with. */
export function warn(name: string, found: string, cost: string, remedy?: string): Finding {
  return { name, status: "warn", found, cost, remedy };
}

/** A lack that no session runs with. */
export function fail(name: string, found: string, cost: string, remedy?: string): Finding {
  return { name, status: "fail", found, cost, remedy };
}

/** The remedy for a check that this user may not run. */
export const AS_ROOT = "Run viv doctor as root.";
