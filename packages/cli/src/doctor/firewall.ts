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

/** Base chains with policy drop, in tables without a rule that accepts the interfaces of machines. */
export function closedChains(chainsJson: string, ruleset: string): Chain[] {
  const { nftables } = JSON.parse(chainsJson) as { nftables: { chain?: Chain }[] };
  return nftables
    .flatMap(({ chain }) => chain ?? [])
    .filter(({ family, table, hook = "", policy }) => {
      const isOther = ["ip", "inet"].includes(family) && table !== OURS && hook in NEEDS;
      return isOther && policy === "drop" && !letsThrough(ruleset, { family, table });
    });
}

function letsThrough(ruleset: string, { family, table }: Pick<Chain, "family" | "table">): boolean {
  const start = ruleset.indexOf(`table ${family} ${table} {`);
  const end = ruleset.indexOf("\n}", start);
  return /ifname "viv\*".* accept/.test(ruleset.slice(start, end));
}

function openings({ family, table, name, hook = "" }: Chain): string[] {
  return (NEEDS[hook]?.directions ?? []).map(
    (direction) => `nft insert rule ${family} ${table} ${name} ${direction} 'viv*' accept`,
  );
}
