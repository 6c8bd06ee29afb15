/** Connects to servers for guests, only at addresses that the gateway has resolved and checked itself. */
import { once } from "node:events";
import { connect, isIPv4, type Socket } from "node:net";
import type { EgressReason } from "@vivarium/contract/gateway";
import type { Resolver } from "../dns/resolver.ts";
import type { CurrentTables } from "../tables/current-tables.ts";
import type { GuestFlow } from "./guest-flow.ts";

const CONNECT_MS = 5_000;
/** Idle time after which TCP keep-alive probes begin. */
const DEAD_PEER_MS = 60_000;

export interface DialDeps {
  tables: CurrentTables;
  resolver: Resolver;
  /** Maps the port that the guest dialled to the port that the gateway dials. */
  dialledPort: (port: number) => number;
}

export class DialRefused extends Error {
  readonly reason: EgressReason;

  constructor(reason: EgressReason) {
    super(`not dialled: ${reason}`);
    this.reason = reason;
  }
}

/** Tries the addresses of the flow's host in order. Rejects with DialRefused when none can be connected. */
export async function dial(deps: DialDeps, flow: GuestFlow): Promise<Socket> {
  const host = flow.admittedHost;
  if (host === undefined) throw new DialRefused("name_not_allowed");
  const addresses = await findAddresses(deps, flow, host);
  for (const address of addresses) {
    const socket = await tryAddress(deps, flow, address);
    if (socket) return socket;
  }
  throw new DialRefused("not_reachable");
}

async function findAddresses(
  { tables, resolver }: DialDeps,
  flow: GuestFlow,
  host: string,
): Promise<string[]> {
  if (isIPv4(host)) {
    if (tables.isNever(host, flow.port)) throw new DialRefused("never_address");
    return [host];
  }
  const resolution = await resolver.resolve(flow.machineId, host);
  if (resolution.result === "never") throw new DialRefused("never_address");
  if (resolution.result !== "found") throw new DialRefused("not_resolved");
  return resolution.addresses;
}

/** Resolves to undefined when the address cannot be connected. Race: nothing is awaited between check and `connect`. */
async function tryAddress(deps: DialDeps, flow: GuestFlow, address: string): Promise<Socket | undefined> {
  if (!flow.isOpen) throw new DialRefused("policy_changed");
  if (deps.tables.isNever(address, flow.port)) throw new DialRefused("never_address");
  const socket = connect({
    host: address,
    port: deps.dialledPort(flow.port),
    allowHalfOpen: true,
    noDelay: true,
  });
  flow.addUpstream(socket, address);
  try {
    await once(socket, "connect", { signal: AbortSignal.timeout(CONNECT_MS) });
  } catch {
    socket.destroy();
    return undefined;
  }
  socket.setKeepAlive(true, DEAD_PEER_MS);
  // Node writes some HTTP heads in the socket's encoding. Latin-1 keeps their bytes unchanged.
  socket.setDefaultEncoding("latin1");
  // Without a listener an error would end the process. Users of the socket add their own.
  socket.on("error", () => {});
  if (flow.isOpen) {
    flow.isConnected = true;
    return socket;
  }
  socket.destroy();
  throw new DialRefused("policy_changed");
}
