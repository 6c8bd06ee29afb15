/** Parses lines of `conntrack -E -o id` into egress log lines of flows that went out by NAT. */
import type { EgressEntry } from "@vivarium/contract/gateway";

export type FlowEvent = NonNullable<ReturnType<typeof parseFlowEvent>>;

export function parseFlowEvent(line: string) {
  const head = /^\s*\[(NEW|DESTROY)\]\s+(tcp|udp|icmp)\s/.exec(line);
  const source = /\ssrc=(\S+)/.exec(line)?.[1];
  const address = /\sdst=(\S+)/.exec(line)?.[1];
  // The last match: for a ping, the packet has an id as well.
  const id = [...line.matchAll(/\sid=(\d+)/g)].at(-1)?.[1];
  if (!head || !source || !address || !id) return undefined;
  const port = /\sdport=(\d+)/.exec(line)?.[1];
  const [bytesOut = 0, bytesIn = 0] = [...line.matchAll(/\sbytes=(\d+)/g)].map(([, bytes]) => Number(bytes));
  return {
    event: head[1] === "NEW" ? ("new" as const) : ("destroy" as const),
    id,
    protocol: head[2] as "tcp" | "udp" | "icmp",
    source,
    address,
    port: port === undefined ? undefined : Number(port),
    bytesOut,
    bytesIn,
  };
}

export function flowEntry(
  flow: FlowEvent,
  began: { machineId: string; at: string; host: string | undefined; mode: "allow" | "deny" },
): EgressEntry {
  const { machineId, at, host, mode } = began;
  const inDeny = host === undefined ? "address_allowed" : "name_allowed";
  return {
    machine_id: machineId,
    at,
    kind: flow.protocol,
    host,
    address: flow.address,
    port: flow.port,
    bytes_out: flow.bytesOut,
    bytes_in: flow.bytesIn,
    verdict: "allowed",
    reason: mode === "allow" ? "mode_allow" : inDeny,
  };
}
