/**
 * Makes and throws away network slots, with their namespaces, rules, gateway listeners and connections, and compares
 * the state after it with the state before it: namespaces, links, rules, connection table, descriptors, slots.
 *
 *   scripts/with-node test/chaos/network-slots.ts [--rounds 2000]
 *
 * Runs in namespaces of its own, independent of everything else on this host. Ends with exit code 1 when something is
 * left.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { connect } from "node:net";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { sleep } from "@vivarium/kit/clock";
import type { Slot } from "../../packages/node/src/host/slots.ts";
import { inNamespacesOfItsOwn, startNetworkLab } from "../support/network-lab.ts";

const AT_ONCE = 3;
const WARM_UP = 30;
const SLOTS = 512;
const EXPOSED = 3000;
const ALLOWED_LEFT = 5;

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "2000" }, inside: { type: "boolean", default: false } },
});

/** Everything below happens in namespaces that nothing else uses. */
function isolated(): number {
  const args = ["--inside", "--rounds", values.rounds];
  const [program = "", ...argv] = inNamespacesOfItsOwn(fileURLToPath(import.meta.url), args);
  return spawnSync(program, argv, { stdio: "inherit" }).status ?? 1;
}

interface Counts {
  namespaces: number;
  links: number;
  rules: number;
  flows: number;
  slots: number;
  ownDescriptors: number;
  gatewayDescriptors: number;
}

function count(program: string, ...args: string[]): number {
  return execFileSync(program, args, { encoding: "utf8" }).split("\n").length - 1;
}

function countAll(gatewayPid: number): Counts {
  return {
    namespaces: count("ip", "netns", "list"),
    links: count("ip", "-o", "link"),
    rules: count("nft", "list", "ruleset"),
    flows: Number(execFileSync("conntrack", ["-C"], { encoding: "utf8", stdio: "pipe" })),
    slots: readdirSync("/run/vivarium/slots").filter((name) => /^\d+$/.test(name)).length,
    ownDescriptors: readdirSync("/proc/self/fd").length,
    gatewayDescriptors: readdirSync(`/proc/${gatewayPid}/fd`).length,
  };
}

async function main(rounds: number): Promise<void> {
  const lab = await startNetworkLab({ slots: SLOTS, resolver: "127.0.0.1" });
  const { network, pool, gateway } = lab;
  gateway.once("exit", (code, signal) => fail(`the gateway ended: ${signal ?? code}`));
  try {
    const live = async (number: number) => {
      await lab.connected();
      const slot = await pool.take(number % 2 ? "deny" : "allow");
      await use(slot, `ses${number}-1`);
      await pool.discard(slot);
    };
    const use = async (slot: Slot, machineId: string) => {
      const egress = { mode: "deny" as const, allow: ["example.com", "8.8.4.4"] };
      await network.networks.assign(slot, machineId, { generation: 1, egress, exposed: [EXPOSED] });
      await network.networks.known(slot, 5_000);
      await knock(slot);
    };
    await many(WARM_UP, live);
    await untilQuiet();
    const before = countAll(Number(gateway.pid));
    console.log("before", JSON.stringify(before));
    await many(rounds, live);
    await untilQuiet();
    const after = countAll(Number(gateway.pid));
    console.log(`after ${rounds}`, JSON.stringify(after));
    report(before, after);
  } finally {
    await lab.close();
  }
  const left = count("ip", "netns", "list");
  if (left > 0) fail(`${left} namespaces are left at the end`);
  process.exit();
}

/** A visitor without an answering guest: the connection stays in the host's table until the slot is thrown away. */
async function knock({ machineAddress }: Slot): Promise<void> {
  const visitor = connect(EXPOSED, machineAddress).on("error", () => {});
  await sleep(20);
  const flows = Number(execFileSync("conntrack", ["-C"], { encoding: "utf8", stdio: "pipe" }));
  if (flows === 0) fail("a connection to a machine is not in the host's table: this test would see nothing");
  visitor.destroy();
}

async function many(rounds: number, live: (number: number) => Promise<void>): Promise<void> {
  let next = 0;
  const worker = async () => {
    while (next < rounds) {
      const mine = next++;
      await live(mine);
      if (mine % 200 === 199) console.log(`${mine + 1} of ${rounds}`);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

/** The pool is full again, and the gateway has closed its listeners. */
function untilQuiet(): Promise<void> {
  return sleep(5_000);
}

function report(before: Counts, after: Counts): void {
  for (const what of Object.keys(before) as (keyof Counts)[]) {
    // Descriptors and flows vary a little; a leak would be thousands.
    const isOver = after[what] > before[what] + (/Descriptors|flows/.test(what) ? ALLOWED_LEFT : 0);
    if (isOver) fail(`${what}: ${before[what]} before, ${after[what]} after`);
  }
}

function fail(finding: string): void {
  console.error(`FINDING: ${finding}`);
  process.exitCode = 1;
}

if (values.inside) await main(Number(values.rounds));
else process.exit(isolated());
