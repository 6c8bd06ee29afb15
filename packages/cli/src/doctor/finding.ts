/** What one check of a host found. */
export interface Finding {
  name: string;
  /** ok; warn: works, at a cost; fail: sessions cannot run. */
  status: "ok" | "warn" | "fail";
  found: string;
  /** What the lack costs. */
  cost?: string;
  /** The way out. */
  remedy?: string;
}

export function ok(name: string, found: string): Finding {
  return { name, status: "ok", found };
}

export function lack(
  name: string,
  status: "warn" | "fail",
  found: string,
  cost: string,
  remedy?: string,
): Finding {
  return { name, status, found, cost, remedy };
}

/** What helps where the host was not looked at, because of who asked. */
export const AS_ROOT = "Run viv doctor as root.";
