import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { closedChains } from "./firewall.ts";

/** Output of nft for these tables, in a namespace of their own. */
function closedAmong(...commands: string[]): string[] {
  const script = [
    ...commands.map((command) => `nft '${command}'`),
    "nft -j list chains",
    "echo",
    "nft list ruleset",
  ];
  const printed = execFileSync("unshare", ["--net", "sh", "-ec", script.join("\n")], { encoding: "utf8" });
  const [chains = "", ...rules] = printed.split("\n");
  return closedChains(chains, rules.join("\n")).map(
    ({ family, table, name }) => `${family} ${table} ${name}`,
  );
}

const DOCKER = "table ip filter { chain FORWARD { type filter hook forward priority 0; policy drop; }; }";
const UFW = "table ip filter { chain INPUT { type filter hook input priority 0; policy drop; }; }";

test("a host without other firewalls, and one that accepts by default, close nothing", () => {
  expect(closedAmong()).toEqual([]);
  expect(
    closedAmong("table inet other { chain f { type filter hook forward priority 0; policy accept; }; }"),
  ).toEqual([]);
});

test("a firewall that drops forwarded or incoming packets is found, Vivarium's own is not", () => {
  expect(closedAmong(DOCKER, UFW)).toEqual(["ip filter FORWARD", "ip filter INPUT"]);
  expect(
    closedAmong(
      "table inet vivarium { chain forward { type filter hook forward priority -5; policy drop; }; }",
    ),
  ).toEqual([]);
  expect(
    closedAmong("table ip6 filter { chain FORWARD { type filter hook forward priority 0; policy drop; }; }"),
  ).toEqual([]);
});

test("a firewall that lets our links through is no problem", () => {
  expect(closedAmong(DOCKER, 'insert rule ip filter FORWARD iifname "viv*" accept')).toEqual([]);
});
