/** Finds other firewalls of this host that drop packets of machines: Vivarium's own rules cannot undo a drop. */
import { runHostCommand } from "@vivarium/kit/host-command";
import { type Finding, ok, warn } from "./finding.ts";

interface Chain {
  family: string;
  table: string;
  name: string;
  hook?: string;
  policy?: string;
}

const OURS = "vivarium";
/** Interface matches that must be accepted for machines, and the cost of a drop, by netfilter hook. */
const NEEDS: Record<string, { directions: string[]; cost: string }> = {
  forward: {
    directions: ["iifname", "oifname"],
    cost: "sessions reach no address directly, as in mode allow",
  },
  input: { directions: ["iifname"], cost: "sessions resolve no names and reach nothing by name" },
};

export async function checkFirewall(): Promise<Finding> {
  const chains = await runHostCommand("nft", ["-j", "list", "chains"]);
  const rules = await runHostCommand("nft", ["list", "ruleset"]);
  if (chains.code !== 0 || rules.code !== 0)
    return ok("other firewalls", "not looked for: nft does not work");
  const closed = closedChains(chains.stdout, rules.stdout);
  if (closed.length === 0) return ok("other firewalls", "none that drops what machines send");
  const found = closed.map(({ family, table, name }) => `${family} ${table} ${name}`).join(", ");
  return warn(
    "other firewalls",
    `${found}: drops what no rule lets in`,
    closed.map(({ hook = "" }) => NEEDS[hook]?.cost).join("; "),
    `Let machines through (Vivarium's own rules still hold): ${closed.flatMap(openings).join("; ")}. Make it last the way that firewall does.`,
  );
}

/**
 * Base chains that drop what no rule accepts, by their policy or by a last rule without a condition (as firewalld has it),
 * and of which no rule, in the chain or in one that it jumps to, accepts the interfaces of machines.
 */
export function closedChains(chainsJson: string, ruleset: string): Chain[] {
  const { nftables } = JSON.parse(chainsJson) as { nftables: { chain?: Chain }[] };
  const rules = rulesByChain(ruleset);
  return nftables
    .flatMap(({ chain }) => chain ?? [])
    .filter(({ family, table, name, hook = "", policy }) => {
      const isOther = ["ip", "inet"].includes(family) && table !== OURS && hook in NEEDS;
      if (!isOther) return false;
      const reached = reachedFrom(rules, `${family} ${table} `, name);
      const own = rules.get(`${family} ${table} ${name}`) ?? [];
      const isClosed = policy === "drop" || own.some((rule) => REFUSES_ALL.test(rule));
      return isClosed && !reached.some((rule) => ACCEPTS_MACHINES.test(rule));
    });
}

/** A rule whose verdict has no condition. */
const REFUSES_ALL =
  /^(counter( packets \d+ bytes \d+)? )?(log( prefix "[^"]*")?( level \w+)? )?(drop|reject( with .*)?)$/;
const ACCEPTS_MACHINES = /^iifname "viv\*".* accept/;

/** The rules of each chain of nft's listing, under `FAMILY TABLE CHAIN`. */
function rulesByChain(ruleset: string): Map<string, string[]> {
  const rules = new Map<string, string[]>();
  let table = "";
  let chain: string[] = [];
  for (const line of ruleset.split("\n")) {
    const [, inTable] = /^table (\w+ \S+) \{/.exec(line) ?? [];
    const [, name] = /^\tchain (\S+) \{/.exec(line) ?? [];
    if (inTable !== undefined) table = inTable;
    else if (name !== undefined) {
      chain = [];
      rules.set(`${table} ${name}`, chain);
    } else if (line.startsWith("\t\t")) chain.push(line.trim());
  }
  return rules;
}

/** The rules of a chain and of all that it jumps to. */
function reachedFrom(rules: Map<string, string[]>, table: string, chain: string): string[] {
  const seen = new Set([chain]);
  // A set that grows while it is walked through: each chain once.
  for (const name of seen)
    for (const rule of rules.get(table + name) ?? []) {
      const [, next] = /\b(?:jump|goto) (\S+)$/.exec(rule) ?? [];
      if (next !== undefined) seen.add(next);
    }
  return [...seen].flatMap((name) => rules.get(table + name) ?? []);
}

function openings({ family, table, name, hook = "" }: Chain): string[] {
  return (NEEDS[hook]?.directions ?? []).map(
    (direction) => `nft insert rule ${family} ${table} ${name} ${direction} 'viv*' accept`,
  );
}
