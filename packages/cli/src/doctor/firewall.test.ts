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

test("a firewall that accepts by default and refuses by its last rule is found, until it lets our links through", () => {
  const firewalld = [
    "table inet firewalld { chain filter_FORWARD { type filter hook forward priority 10; policy accept; }; chain zones { }; }",
    "add rule inet firewalld filter_FORWARD ct state established,related accept",
    "add rule inet firewalld filter_FORWARD ct state invalid drop",
    "add rule inet firewalld filter_FORWARD jump zones",
  ];
  expect(closedAmong(...firewalld)).toEqual([]);
  const refusing = [
    ...firewalld,
    "add rule inet firewalld filter_FORWARD reject with icmpx admin-prohibited",
  ];
  expect(closedAmong(...refusing)).toEqual(["inet firewalld filter_FORWARD"]);
  expect(closedAmong(...refusing, 'add rule inet firewalld zones iifname "viv*" accept')).toEqual([]);
});

test("a rule that lets our links into one chain opens no other chain of its table", () => {
  expect(
    closedAmong(
      DOCKER,
      "table ip filter { chain INPUT { type filter hook input priority 0; policy accept; }; }",
      'add rule ip filter INPUT iifname "viv*" accept',
    ),
  ).toEqual(["ip filter FORWARD"]);
});
