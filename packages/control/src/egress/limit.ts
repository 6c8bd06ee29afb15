/** How far the counter of a session's machine may go, so that the day's cap is kept. Pure. */

/** Bytes of the session's machines on one UTC day. */
export interface DayUsage {
  /** What the machine's counter was when the day began. */
  machineStart: number;
  /** What other machines of the session sent on this day. */
  others: number;
  /** The cap was reached on this day. */
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
