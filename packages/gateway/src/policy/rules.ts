/** Compiles an egress policy, and judges which names and ports a machine may reach. Pure. */
import { isIPv4 } from "node:net";
import type { EgressReason, EgressRules } from "@vivarium/contract/gateway";
import { normaliseName, parentsOf } from "./names.ts";

/** The ports that a name without a port opens. On these the gateway checks the name in HTTP and TLS. */
export const WEB_PORTS: readonly number[] = [80, 443];

type Ports = Set<number>;

export interface Rules {
  mode: EgressRules["mode"];
  exact: Map<string, Ports>;
  /** Keyed by the name behind `*.`: opens the names below it, not the name itself. */
  wildcards: Map<string, Ports>;
  /** An address without a port opens `all` ports. */
  addresses: Map<string, Ports | "all">;
}

export interface Judgement {
  isAllowed: boolean;
  reason: EgressReason;
}

/** An entry that cannot be read opens nothing. */
export function compileRules(egress: EgressRules): Rules {
  const rules: Rules = { mode: egress.mode, exact: new Map(), wildcards: new Map(), addresses: new Map() };
  for (const entry of egress.allow) addEntry(rules, entry);
  return rules;
}

function addEntry(rules: Rules, entry: string): void {
  const match = /^([^:]+)(?::([1-9]\d{0,4}))?$/.exec(entry);
  const host = match?.[1];
  const port = match?.[2] === undefined ? undefined : Number(match[2]);
  if (host === undefined || (port !== undefined && port > 65_535)) return;
  if (isIPv4(host)) addAddress(rules, host, port);
  else addName(rules, host, port);
}

function addName(rules: Rules, host: string, port: number | undefined): void {
  const isWildcard = host.startsWith("*.");
  const name = normaliseName(isWildcard ? host.slice(2) : host);
  if (name === null) return;
  const table = isWildcard ? rules.wildcards : rules.exact;
  const ports = table.get(name) ?? new Set();
  for (const opened of port === undefined ? WEB_PORTS : [port]) ports.add(opened);
  table.set(name, ports);
}

function addAddress(rules: Rules, address: string, port: number | undefined): void {
  const known = rules.addresses.get(address);
  if (port === undefined || known === "all") rules.addresses.set(address, "all");
  else rules.addresses.set(address, (known ?? new Set<number>()).add(port));
}

/** The ports that are open for a normalised name; empty when no entry matches. */
export function portsFor(rules: Rules, name: string): Ports {
  const found = [rules.exact.get(name), ...parentsOf(name).map((parent) => rules.wildcards.get(parent))];
  return new Set(found.flatMap((ports) => [...(ports ?? [])]));
}

/** Whether a connection to this host (a normalised name, or an IPv4 address) and port is allowed. */
export function judge(rules: Rules, host: string, port: number): Judgement {
  if (rules.mode === "allow") return { isAllowed: true, reason: "mode_allow" };
  if (isIPv4(host)) {
    const ports = rules.addresses.get(host);
    if (ports === undefined) return { isAllowed: false, reason: "no_name" };
    const isOpen = ports === "all" || ports.has(port);
    return { isAllowed: isOpen, reason: isOpen ? "address_allowed" : "port_not_allowed" };
  }
  const ports = portsFor(rules, host);
  if (ports.size === 0) return { isAllowed: false, reason: "name_not_allowed" };
  const isOpen = ports.has(port);
  return { isAllowed: isOpen, reason: isOpen ? "name_allowed" : "port_not_allowed" };
}
