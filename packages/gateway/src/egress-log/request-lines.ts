/** Writes a request through a Connection as a line of the egress log. */
import type { ConnectionEntry, EgressEntry, EgressReason } from "@vivarium/contract/gateway";

/** A request, with the machine that made it. */
export type RequestEntry = ConnectionEntry & { machine_id: string };

/** Why a request has this line, unless the entry has a code. */
const REASONS = {
  used: "connection_used",
  reflected: "connection_reflected",
  denied: "connection_request_invalid",
  failed: "connection_upstream",
} satisfies Record<ConnectionEntry["event"], EgressReason>;

export function lineOf(entry: RequestEntry): EgressEntry {
  const { session_id: _, event, code = REASONS[event], ...rest } = entry;
  const verdict = event === "denied" ? "denied" : "allowed";
  return { kind: "connection", port: 443, verdict, reason: code, ...rest };
}
