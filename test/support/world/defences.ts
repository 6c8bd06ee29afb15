/** Removes defences of one machine, so that a test can show that it notices their absence. */
import { execFileSync } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { ServiceFacts } from "../service.ts";

/** Network namespace of a session's machine. */
export function netnsOf({ dataDir }: ServiceFacts, sessionId: string): string {
  const machines = join(dataDir, "pool/m");
  const folder = readdirSync(machines).find((name) => name.startsWith(`${sessionId}-`));
  if (folder === undefined) throw new Error(`session ${sessionId} has no machine on this host`);
  const { slot } = JSON.parse(readFileSync(join(machines, folder, "machine.json"), "utf8"));
  return `viv-${slot}`;
}

/** Runs `use` while neither the machine's rules nor the host's block this guest from the address. */
export async function openedTo<T>(netns: string, address: string, use: () => Promise<T>): Promise<T> {
  const machine = ["inet", "machine"];
  const host = ["inet", "vivarium"];
  const undone = [
    insert(netns, [...machine, "by_mode", "ip", "daddr", address, "return"]),
    insert(netns, [...machine, "judge", "ct", "original", "ip", "daddr", address, "goto", "granted"]),
    insert(undefined, [...host, "forward", "iifname", "viv*", "ip", "daddr", address, "accept"]),
  ];
  try {
    return await use();
  } finally {
    for (const undo of undone) undo();
  }
}

/** Runs `use` while the first machine can reach the port of the second, and machines reach each other. */
export async function openedBetween<T>(
  from: string,
  to: { netns: string; address: string; port: number },
  use: () => Promise<T>,
): Promise<T> {
  const links = ["iifname", "viv*", "oifname", "viv*", "accept"];
  const port = ["iifname", "veth0", "tcp", "dport", String(to.port), "dnat", "ip", "to", "10.200.0.2"];
  const undone = [
    insert(undefined, ["inet", "vivarium", "forward", ...links]),
    insert(to.netns, ["inet", "machine", "nat_pre", ...port]),
  ];
  try {
    return await openedTo(from, to.address, use);
  } finally {
    for (const undo of undone) undo();
  }
}

/** Removes the rules of a chain that contain a text, until the machine ends. */
export function dropRules(netns: string, chain: string, text: string): void {
  const listing = nft(netns, ["-a", "list", "chain", "inet", "machine", chain]);
  const handles = listing
    .split("\n")
    .flatMap((line) => (line.includes(text) ? (/# handle (\d+)$/.exec(line)?.[1] ?? []) : []));
  if (handles.length === 0) throw new Error(`no rule of ${chain} contains ${text}:\n${listing}`);
  for (const handle of handles) nft(netns, ["delete", "rule", "inet", "machine", chain, "handle", handle]);
}

function insert(netns: string | undefined, rule: string[]): () => void {
  const printed = nft(netns, ["-e", "-a", "insert", "rule", ...rule]);
  const handle = /# handle (\d+)/.exec(printed)?.[1];
  if (handle === undefined) throw new Error(`nft printed no handle: ${printed}`);
  const place = rule.slice(0, 3);
  return () => void nft(netns, ["delete", "rule", ...place, "handle", handle]);
}

function nft(netns: string | undefined, args: string[]): string {
  const within = netns === undefined ? [] : ["nsenter", `--net=/run/netns/${netns}`];
  const [program = "", ...argv] = [...within, "nft", ...args];
  return execFileSync(program, argv, { encoding: "utf8", stdio: "pipe" });
}
