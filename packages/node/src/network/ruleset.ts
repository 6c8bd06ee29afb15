/**
 * Writes the nft table of a machine's namespace (docs/design/network.md). A policy fills sets and the three chains that
 * `contentOf` writes. Everything else is written once.
 *
 * A flow is judged by the target of its first packet (`ct original`). So packets of both directions are judged alike,
 * and after a change of policy either side may send first.
 */
import { createHash } from "node:crypto";
import { GATEWAY_PORTS } from "@vivarium/contract/gateway";
import { type Opening, textOfOpening } from "@vivarium/kit/ipv4-openings";
import { openElements } from "../host/host-network.ts";
import { GATEWAY_ADDRESS, GUEST_ADDRESS, UPLINK_NAME } from "../host/netns.ts";
import { GUEST_MAC, TAP_NAME } from "../qemu/arguments.ts";
import type { KernelPolicy } from "./kernel-policy.ts";
import type { KeptPins, LearnedElement } from "./pins.ts";

export const TABLE = "inet machine";

/** Quota in bytes of a machine without a cap. */
const NO_LIMIT = Number.MAX_SAFE_INTEGER;
/**
 * Open flows per machine. Each takes an entry in two connection tables of the host. The documented maximum is 2,048;
 * the kernel's count lags a little when many begin at once.
 */
const FLOWS = 2040;
/** Most open connections of a machine to the gateway. Each costs the gateway a socket. */
const GATEWAY_FLOWS = 512;
/** New flows per second, after a burst of `FLOWS`: closed flows too stay in the connection tables for a while. */
const NEW_FLOWS = 200;
/** Definition of the set of targets whose flows continue under this policy, although their pin may have expired. */
const LASTING = "{ type ipv4_addr . inet_service; size 4096; }";
const SMTP_PORTS = [25, 465, 587];
/** Definition of the set of TCP ports in never-ranges that the operator opened. */
const OPEN = "{ type ipv4_addr . inet_service; flags interval; }";
/** Number of refused targets that the kernel remembers for the egress log. */
export const MAX_REFUSED_FLOWS = 512;

/** The two addresses of a slot, and the settings for all machines of this node. */
export interface RulesetInput {
  hostAddress: string;
  machineAddress: string;
  never: string[];
  /** TCP ports in never-ranges that the operator opened. */
  open?: readonly Opening[];
  closeSmtp: boolean;
}

/** A change of a machine's spec: a new egress policy, or a new cap or new exposed ports under the same policy. */
export interface PolicyChange {
  policy: KernelPolicy;
  mark: number;
  /** The generation of the spec, kept in the table for a restarted daemon. */
  generation: number;
  limitBytes: number | undefined;
  /** Absent if the mark did not change: all pins stay as they are. */
  pins?: KeptPins;
}

/** The nft script that replaces the whole table. */
export function rulesetOf(input: RulesetInput, policy: KernelPolicy, mark: number, generation = 0): string {
  return `
table ${TABLE} { }
delete table ${TABLE}
table ${TABLE} {
${objects(input)}
${fixedChains(input)}
  chain by_mode { }
  chain judged { }
  chain judge { }
}
${contentOf(input, policy, { mark, generation })}
`;
}

/** The nft script that applies a change in one transaction. Flows that it allows continue, all others end. */
export function policyChange(input: RulesetInput, change: PolicyChange): string {
  const { pins } = change;
  const always = ["open4", "allow_ip", "allow_ipport", "exposed", "capped"];
  const flushed = [...always, ...(pins ? ["learned", "lasting"] : [])];
  // The sets may be missing in the table of a machine that an earlier version started.
  return `
add set ${TABLE} lasting ${LASTING}
add set ${TABLE} open4 ${OPEN}
${flushed.map((name) => `flush set ${TABLE} ${name}`).join("\n")}
flush chain ${TABLE} by_mode
flush chain ${TABLE} judged
flush chain ${TABLE} judge
${contentOf(input, { ...change.policy, limitBytes: change.limitBytes }, change)}
${pins ? learn(pins.learned) : ""}
${elements("lasting", pins ? pins.lasting.map(pairOf) : [])}
`;
}

/** Identifies what the operator opened: a table with another one has openings of an earlier start of the daemon. */
export function digestOf(open: readonly Opening[] = []): string {
  const text = open.map(textOfOpening).toSorted().join(",");
  return createHash("sha256").update(text).digest("hex").slice(0, 16);
}

/** The nft script that empties the sets of refused flows. */
export const FORGET_REFUSED = `flush set ${TABLE} refused\nflush set ${TABLE} cut\n`;

/** The nft script that adds pins. Adding an element does not renew its timeout, so existing ones are deleted first. */
export function learn(elements: LearnedElement[]): string {
  if (elements.length === 0) return "";
  const keys = elements.map(pairOf);
  const timed = elements.map((element) => `${pairOf(element)} timeout ${element.ttlS}s`);
  return `
add element ${TABLE} learned { ${keys.join(", ")} }
delete element ${TABLE} learned { ${keys.join(", ")} }
add element ${TABLE} learned { ${timed.join(", ")} }
`;
}

const pairOf = ({ address, port }: { address: string; port: number }) => `${address} . ${port}`;

function objects({ never }: RulesetInput): string {
  return `
  set never4 { type ipv4_addr; flags interval; auto-merge; elements = { ${never.join(", ")} } }
  set open4 ${OPEN}
  set allow_ip { type ipv4_addr; }
  set allow_ipport { type ipv4_addr . inet_service; }
  set learned { type ipv4_addr . inet_service; flags timeout; timeout 70m; size 4096; }
  # Targets of flows that continue under this policy, although their pin may have expired.
  set lasting ${LASTING}
  set exposed { type inet_service; }
  set capped { type ipv4_addr; flags dynamic; size 4; }
  set refused { type ipv4_addr . inet_proto . inet_service; flags dynamic,timeout; timeout 10m; size ${MAX_REFUSED_FLOWS}; }
  set cut { type ipv4_addr . inet_proto . inet_service; flags dynamic,timeout; timeout 10m; size ${MAX_REFUSED_FLOWS}; }
  counter egress_bytes { }
  counter ingress_bytes { }
  counter dropped { }
  quota cap { over ${NO_LIMIT} bytes }`;
}

function fixedChains({ hostAddress, machineAddress }: RulesetInput): string {
  const { dns, http, tls } = GATEWAY_PORTS;
  return `
  # Before fragments are put together, which connection tracking does.
  chain guard {
    type filter hook prerouting priority -500; policy accept;
    iifname "${TAP_NAME}" ether saddr != ${GUEST_MAC} counter name dropped drop
    iifname "${TAP_NAME}" meta nfproto != ipv4 counter name dropped drop
    iifname "${TAP_NAME}" ip saddr != ${GUEST_ADDRESS} counter name dropped drop
    iifname "${TAP_NAME}" ip frag-off & 0x3fff != 0 counter name dropped drop
    iifname "${TAP_NAME}" meta l4proto != { tcp, udp, icmp } counter name dropped drop
  }
  chain nat_pre {
    type nat hook prerouting priority dstnat; policy accept;
    iifname "${TAP_NAME}" meta l4proto { tcp, udp } th dport 53 dnat ip to ${hostAddress}:${dns}
    iifname "${TAP_NAME}" jump by_mode
    iifname "${UPLINK_NAME}" ip saddr ${hostAddress} ip daddr ${machineAddress} tcp dport @exposed dnat ip to ${GUEST_ADDRESS}
  }
  chain input {
    type filter hook input priority filter; policy drop;
    iifname "lo" accept
    iifname "${TAP_NAME}" ip daddr ${GATEWAY_ADDRESS} icmp type echo-request limit rate 10/second accept
    counter name dropped
  }
  # Nothing in this namespace may send to the outside, above all not a QEMU that was taken over.
  chain output {
    type filter hook output priority filter; policy accept;
    oifname "${UPLINK_NAME}" meta l4proto icmp ct state related accept
    oifname "${UPLINK_NAME}" drop
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    ct state invalid counter name dropped drop
    iifname "${TAP_NAME}" oifname "${UPLINK_NAME}" ct direction original jump brakes
    iifname "${TAP_NAME}" oifname "${UPLINK_NAME}" ct direction original goto judged
    iifname "${UPLINK_NAME}" oifname "${TAP_NAME}" ct direction reply goto judged
    iifname "${UPLINK_NAME}" oifname "${TAP_NAME}" ct direction original goto preview
    iifname "${TAP_NAME}" oifname "${UPLINK_NAME}" ct direction reply goto preview
    counter name dropped
  }
  chain brakes {
    ip daddr ${hostAddress} udp dport ${dns} limit rate over 50/second burst 200 packets counter name dropped drop
    ct state new ip daddr ${hostAddress} tcp dport ${dns} limit rate over 50/second burst 200 packets counter name dropped drop
    # DNS questions have rate limits of their own.
    ip daddr ${hostAddress} meta l4proto { tcp, udp } th dport ${dns} return
    ct status & confirmed == 0 limit rate over ${NEW_FLOWS}/second burst ${FLOWS} packets counter name dropped drop
    ct state new ip daddr ${hostAddress} tcp dport { ${http}, ${tls} } ct count over ${GATEWAY_FLOWS} counter name dropped reject with tcp reset
    ct state new ip daddr != ${hostAddress} ct count over ${FLOWS} counter name dropped drop
  }
  # Evaluated for every packet, so that an unexposed port closes at once. Preview bytes are not egress.
  chain preview {
    meta l4proto tcp ct status dnat ct original proto-dst @exposed accept
    counter name dropped drop
  }
  chain granted {
    oifname "${TAP_NAME}" counter name ingress_bytes accept
    ip saddr @capped goto cut
    quota name "cap" add @capped { ip saddr } goto cut
    counter name egress_bytes accept
  }
  # Allowed by the policy, but over the cap.
  chain cut {
    counter name dropped
    meta l4proto { tcp, udp } update @cut { ip daddr . meta l4proto . th dport counter }
    drop
  }
  chain refuse {
    counter name dropped
    iifname "${UPLINK_NAME}" drop
    meta l4proto { tcp, udp } update @refused { ip daddr . meta l4proto . th dport counter }
    meta l4proto tcp reject with tcp reset
    ip daddr @never4 reject with icmp type admin-prohibited
    drop
  }
  chain post {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "${UPLINK_NAME}" ip saddr ${GUEST_ADDRESS} masquerade
    oifname "${TAP_NAME}" ct status dnat masquerade
  }`;
}

function contentOf(
  input: RulesetInput,
  policy: KernelPolicy,
  { mark, generation }: { mark: number; generation: number },
): string {
  const isDeny = policy.mode === "deny";
  const { tls, http } = GATEWAY_PORTS;
  const redirects: Redirect[] = [
    ...(isDeny ? [{ port: 80, to: http }] : []),
    ...(isDeny || policy.isBound ? [{ port: 443, to: tls }] : []),
  ];
  return `
add quota ${TABLE} cap { over ${policy.limitBytes ?? NO_LIMIT} bytes }
${openElements(TABLE, input.open ?? [])}
${elements("allow_ip", policy.addresses)}
${elements("allow_ipport", policy.addressPorts.map(pairOf))}
${elements("exposed", policy.exposed.map(String))}
table ${TABLE} {
  chain by_mode {
${toGateway(input.hostAddress, redirects)}
  }
  chain judged {
    ct mark ${mark} ct state established,related goto granted comment "generation ${generation}"
    goto judge comment "open ${digestOf(input.open)}"
  }
  chain judge {
    ct status dnat ct mark set ${mark} goto granted
    ct original ip daddr @never4 meta l4proto != tcp goto refuse
    ct original ip daddr @never4 meta l4proto tcp ct original ip daddr . ct original proto-dst != @open4 goto refuse
    meta l4proto tcp ct original proto-dst 853 goto refuse
    meta l4proto udp ct original proto-dst 853 goto refuse
${input.closeSmtp ? `    meta l4proto tcp ct original proto-dst { ${SMTP_PORTS.join(", ")} } goto refuse` : ""}
${policy.isBound ? NOTHING_ELSE_ON_443 : ""}
${isDeny ? ALLOWED_IN_DENY(mark) : ALLOWED_IN_ALLOW(mark)}
    goto refuse
  }
}`;
}

/** A TCP port that a guest dials, and the port of the gateway that it reaches. */
interface Redirect {
  port: number;
  to: number;
}

/**
 * Redirects TCP ports to ports of the gateway, which judges by name, unless the address is allowed or can never be
 * reached.
 */
function toGateway(hostAddress: string, redirects: Redirect[]): string {
  if (redirects.length === 0) return "";
  return `
    ip daddr @never4 ip daddr . tcp dport != @open4 return
    ip daddr @allow_ip return
    ip daddr . tcp dport @allow_ipport return
${redirects.map(({ port, to }) => `    tcp dport ${port} dnat ip to ${hostAddress}:${to}`).join("\n")}`;
}

/**
 * Rules of mode `allow` for a session with Connections: flows on 443 that were opened before its first one end, and
 * clients fall back from QUIC, in which the gateway cannot verify a name, to TCP.
 */
const NOTHING_ELSE_ON_443 = `
    meta l4proto tcp ct original proto-dst 443 goto refuse
    meta l4proto udp ct original proto-dst 443 goto refuse`;

/** Rules of mode `deny`. UDP 443 (QUIC) is refused, because the gateway cannot verify a name in it. */
const ALLOWED_IN_DENY = (mark: number) => `
    meta l4proto udp ct original proto-dst 443 goto refuse
    meta l4proto { tcp, udp } ct original ip daddr @allow_ip ct mark set ${mark} goto granted
    meta l4proto tcp ct original ip daddr . ct original proto-dst @allow_ipport ct mark set ${mark} goto granted
    meta l4proto tcp ct original ip daddr . ct original proto-dst @learned ct mark set ${mark} goto granted
    meta l4proto tcp ct state established ct original ip daddr . ct original proto-dst @lasting ct mark set ${mark} goto granted`;

const ALLOWED_IN_ALLOW = (mark: number) => `
    meta l4proto { tcp, udp } ct mark set ${mark} goto granted
    icmp type { echo-request, echo-reply } ct mark set ${mark} goto granted`;

function elements(set: string, values: string[]): string {
  return values.length === 0 ? "" : `add element ${TABLE} ${set} { ${values.join(", ")} }`;
}
