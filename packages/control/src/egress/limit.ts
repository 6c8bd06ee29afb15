/** The counter at which a session's machine is cut off, so that the day's cap is kept. Pure. */

/** Bytes of the session's machines on one UTC day. */
export interface DayUsage {
  /** The machine's counter when the day began. */
  machineStart: number;
  /** Bytes that other machines of the session sent today. */
  others: number;
  /** The cap was reached today. */
  isReached: boolean;
}

/** The machine's `egress_limit_bytes`; null: no limit. */
export function limitOf(
  capBytes: number | null,
  { machineStart, others, isReached }: DayUsage,
): number | null {
  if (capBytes === null) return null;
  return machineStart + (isReached ? 0 : Math.max(0, capBytes - others));
}
