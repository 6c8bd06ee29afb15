/** The part of a machine's NetworkSpec that the kernel enforces. Names are enforced by the gateway. */
import type { NetworkSpec } from "@vivarium/contract/node";

export interface KernelPolicy {
  mode: "allow" | "deny";
  /** Bare IPv4 entries, with or without a port. They go out directly. */
  addresses: string[];
  addressPorts: { address: string; port: number }[];
  exposed: number[];
  limitBytes: number | undefined;
}

/** The default of a StartSpec without a network. */
export const OPEN_NETWORK: NetworkSpec = {
  generation: 1,
  egress: { mode: "allow", allow: [] },
  exposed: [],
};

const BARE_ADDRESS = /^(\d{1,3}(?:\.\d{1,3}){3})(?::(\d+))?$/;

export function kernelPolicyOf(spec: NetworkSpec): KernelPolicy {
  const { mode } = spec.egress;
  const matches = mode === "allow" ? [] : spec.egress.allow.map((entry) => BARE_ADDRESS.exec(entry));
  const bare = matches.flatMap((match) => (match ? [{ address: match[1] as string, port: match[2] }] : []));
  return {
    mode,
    addresses: unique(bare.filter(({ port }) => port === undefined).map(({ address }) => address)),
    addressPorts: bare.flatMap(({ address, port }) =>
      port === undefined ? [] : [{ address, port: Number(port) }],
    ),
    exposed: [...new Set(spec.exposed)].sort((a, b) => a - b),
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

const unique = (values: string[]) => [...new Set(values)];
