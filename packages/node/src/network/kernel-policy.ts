/** Derives the part of a machine's NetworkSpec that the kernel enforces. The gateway enforces names. */
import type { NetworkSpec } from "@vivarium/contract/node";

export interface KernelPolicy {
  mode: "allow" | "deny";
  /** IPv4 entries without a port. Flows to them go out without the gateway. */
  addresses: string[];
  /** IPv4 entries with a port, likewise. */
  addressPorts: { address: string; port: number }[];
  /** Whether the gateway gets all TCP to port 443 in mode `allow`. In mode `deny` it does so anyway. */
  isBound: boolean;
  exposed: number[];
  limitBytes: number | undefined;
}

export function networkWithoutEntries(mode: KernelPolicy["mode"]): NetworkSpec {
  return { generation: 1, egress: { mode, allow: [] }, exposed: [] };
}

/** The network policy of a StartSpec without one. */
export const OPEN_NETWORK = networkWithoutEntries("allow");

const BARE_ADDRESS = /^(\d{1,3}(?:\.\d{1,3}){3})(?::(\d+))?$/;

export function kernelPolicyOf(spec: NetworkSpec): KernelPolicy {
  const { mode, allow } = spec.egress;
  const addresses = new Set<string>();
  const addressPorts: KernelPolicy["addressPorts"] = [];
  for (const entry of mode === "allow" ? [] : allow) {
    const [, address, port] = BARE_ADDRESS.exec(entry) ?? [];
    if (address === undefined) continue;
    if (port === undefined) addresses.add(address);
    else addressPorts.push({ address, port: Number(port) });
  }
  const exposed = [...new Set(spec.exposed)].sort((a, b) => a - b);
  return {
    mode,
    addresses: [...addresses],
    addressPorts,
    isBound: mode === "allow" && spec.bound_hosts !== undefined,
    exposed,
    limitBytes: spec.egress_limit_bytes,
  };
}

/** Whether an entry `host:port` or `*.host:port` of the policy lets this name be reached on this port. */
export function allowsPin(spec: NetworkSpec, host: string, port: number): boolean {
  return spec.egress.allow.some((entry) => {
    const at = entry.lastIndexOf(":");
    if (at < 0 || Number(entry.slice(at + 1)) !== port) return false;
    const name = entry.slice(0, at);
    return name.startsWith("*.") ? host.endsWith(name.slice(1)) && host !== name.slice(2) : host === name;
  });
}
