/** Renders egress policies, egress logs and caps. */
import type { EgressCap, EgressLogEntry, OrgEgressCap, SessionEgress } from "@vivarium/sdk";
import { formatBytes } from "./bytes.ts";
import { noPaint, type Paint } from "./paint.ts";
import { plainText, renderFields, renderTable } from "./table.ts";

const DECISION_STYLES = { allowed: "green", denied: "red" } as const;

export function renderPolicy({ mode, allow }: SessionEgress): string {
  return renderFields([["mode", mode], ...allow.map((entry): [string, string] => ["allow", entry])]);
}

export function renderLog(entries: EgressLogEntry[], paint: Paint = noPaint): string {
  if (entries.length === 0) return "Nothing logged. Lines appear some seconds after what they tell of.";
  const headings = ["TIME", "KIND", "DECISION", "TO", "SENT", "RECEIVED", "REASON", "COUNT"];
  const rows = entries.map((entry) => [
    entry.at,
    entry.kind,
    entry.decision,
    targetOf(entry),
    formatBytes(entry.bytes_out),
    formatBytes(entry.bytes_in),
    reasonOf(entry),
    String(entry.count),
  ]);
  return renderTable(headings, rows, (padded, { row, heading }) => {
    const entry = entries[row - 1];
    if (entry === undefined) return paint("dim", padded);
    return heading === "DECISION" ? paint(DECISION_STYLES[entry.decision], padded) : padded;
  });
}

/** A log line for --follow: `2027-01-01T10:00:00.000Z  tls  denied  example.com:443  name_not_allowed`. */
export function renderLogLine(entry: EgressLogEntry, paint: Paint = noPaint): string {
  const sent = entry.bytes_out > 0 && `sent ${formatBytes(entry.bytes_out)}`;
  const received = entry.bytes_in > 0 && `received ${formatBytes(entry.bytes_in)}`;
  const times = entry.count > 1 && `${entry.count} times`;
  const after = [targetOf(entry), reasonOf(entry), sent, received, times].filter(Boolean).join("  ");
  const decision = paint(DECISION_STYLES[entry.decision], entry.decision);
  return `${entry.at}  ${entry.kind}  ${decision}  ${plainText(after)}`;
}

export function renderCap({ egress_cap_bytes, today_bytes, date, wake_on_http }: EgressCap): string {
  return renderFields([
    ["cap", perDay(egress_cap_bytes)],
    ["sent", sentOf(today_bytes, egress_cap_bytes)],
    ["day", `${date} (UTC)`],
    ["wakes on http", wake_on_http ? "yes" : "no"],
  ]);
}

export function renderOrgCap(cap: OrgEgressCap): string {
  return renderFields([
    ["cap", `${perDay(cap.cap_bytes)}${cap.override ? "" : " (the default)"}`],
    ["default", perDay(cap.default_cap_bytes)],
    ["sent", sentOf(cap.today_bytes, cap.cap_bytes)],
    ["day", `${cap.date} (UTC)`],
  ]);
}

function perDay(capBytes: number): string {
  return capBytes > 0 ? `${formatBytes(capBytes)} a day` : "none";
}

function sentOf(bytes: number, capBytes: number): string {
  const share = capBytes > 0 ? ` (${Math.floor((100 * bytes) / capBytes)} % of the cap)` : "";
  return `${formatBytes(bytes)}${share}`;
}

/** Shows with the reason that the address is a private one, which only the operator can have opened. */
function reasonOf(entry: EgressLogEntry): string {
  return entry.private ? `${entry.reason} (private)` : entry.reason;
}

/** The destination: the name that the guest asked for, if any, else the address. */
function targetOf({ host, address, port }: EgressLogEntry): string {
  const target = host ?? address ?? "";
  return port === undefined ? target : `${target}:${port}`;
}
