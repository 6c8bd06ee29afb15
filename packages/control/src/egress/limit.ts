/** How far the counter of a session's machine may go, so that the day's cap is kept. Pure. */

/** Bytes of the session's machines on one UTC day. */
export interface DayUsage {
  /** What the machine's counter was when the day began. */
  machineStart: number;
  /** What other machines of the session sent on this day. */
  others: number;
}

/** The machine's `egress_limit_bytes`; null: no limit. */
export function limitOf(capBytes: number | null, { machineStart, others }: DayUsage): number | null {
  return capBytes === null ? null : machineStart + Math.max(0, capBytes - others);
}
