import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterAll, beforeAll, expect, it, onTestFinished } from "vitest";
import { nftIn } from "../host/netns.ts";
import { run } from "../host/run.ts";
import { readTable } from "./read-table.ts";

const NETNS = `read-table-${process.pid}`;
const SET = "type ipv4_addr . inet_proto . inet_service; flags dynamic,timeout; timeout 10m;";
const TABLE = `
table inet machine {
  set refused { ${SET} elements = { 192.0.2.1 . tcp . 80 counter packets 3 bytes 180, 192.0.2.2 . udp . 53 counter packets 1 bytes 60 } }
  set cut { ${SET} elements = { 192.0.2.3 . tcp . 443 counter packets 2 bytes 120 } }
}`;
const REFUSED = [
  { address: "192.0.2.1", protocol: "tcp", port: 80, packets: 3 },
  { address: "192.0.2.2", protocol: "udp", port: 53, packets: 1 },
];
const CUT = [{ address: "192.0.2.3", protocol: "tcp", port: 443, packets: 2 }];

beforeAll(async () => {
  await run("ip", ["netns", "add", NETNS]);
  await nftIn(NETNS, ["-f", "-"], TABLE);
});
afterAll(() => run("ip", ["netns", "del", NETNS]));

async function refusedFlows() {
  const { refused, cut } = await readTable(NETNS);
  return { refused: refused.toSorted((a, b) => b.port - a.port), cut };
}

it("has the refused flows with their protocols", async () => {
  expect(await refusedFlows()).toEqual({ refused: REFUSED, cut: CUT });
});

it("has them also on a host whose /etc/protocols names no protocol", async () => {
  await withoutProtocolNames();
  expect(await nftIn(NETNS, ["list", "set", "inet", "machine", "cut"])).toContain("192.0.2.3 . 6 . 443");
  expect(await refusedFlows()).toEqual({ refused: REFUSED, cut: CUT });
});

/** Until the test ends, a `nft` comes first in PATH that finds an empty /etc/protocols. */
async function withoutProtocolNames(): Promise<void> {
  const dir = await mkdtemp(path.join(tmpdir(), "no-protocols-"));
  const { PATH = "" } = process.env;
  onTestFinished(async () => {
    process.env.PATH = PATH;
    await rm(dir, { recursive: true });
  });
  const script = `#!/bin/sh
PATH='${PATH}'
[ -e /etc/protocols ] || exec nft "$@"
exec unshare --mount sh -ec 'mount --bind /dev/null /etc/protocols; exec nft "$@"' sh "$@"
`;
  await writeFile(path.join(dir, "nft"), script);
  await chmod(path.join(dir, "nft"), 0o755);
  process.env.PATH = `${dir}:${PATH}`;
}
