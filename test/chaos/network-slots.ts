/**
 * Makes and throws away network slots, with their namespaces, rules, gateway listeners and connections, and compares
 * what is left with what was there before: namespaces, links, rules, connection table, descriptors, slots.
 *
 *   scripts/with-node test/chaos/network-slots.ts [--rounds 2000]
 *
 * Runs in a network and a mount namespace of its own, beside whatever runs on this host. Ends with exit code 1 when
 * something is left.
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { sleep } from "@vivarium/kit/clock";
import { createLog } from "@vivarium/kit/log";
import { fastify } from "fastify";
import { createNetwork } from "../../packages/node/src/app.ts";
import { prepareHostNetwork, readHostNetwork } from "../../packages/node/src/host/host-network.ts";
import { NamespacePool } from "../../packages/node/src/host/namespace-pool.ts";
import type { Slot } from "../../packages/node/src/host/slots.ts";
import { registerGatewayRoutes } from "../../packages/node/src/server/gateway-routes.ts";
import { findUid, listenForGateway } from "../../packages/node/src/server/listen.ts";
import { eventually } from "../support/eventually.ts";

const GATEWAY = fileURLToPath(new URL("../../packages/gateway/src/main.ts", import.meta.url));
const GATEWAY_USER = "nobody";
const AT_ONCE = 3;
const WARM_UP = 30;
const SLOTS = 512;
const EXPOSED = 3000;
const ALLOWED_LEFT = 5;

const { values } = parseArgs({
  options: { rounds: { type: "string", default: "2000" }, inside: { type: "boolean", default: false } },
});

/** Everything below happens where nobody else is. */
function isolated(): number {
  const script = 'mount -t tmpfs none /run && ip link set lo up && exec "$@"';
  const self = [process.execPath, "--no-warnings", fileURLToPath(import.meta.url), "--inside"];
  const argv = ["--net", "--mount", "sh", "-c", script, "sh", ...self, "--rounds", values.rounds];
  return spawnSync("unshare", argv, { stdio: "inherit" }).status ?? 1;
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
  const folder = mkdtempSync(join(tmpdir(), "viv-slots-"));
  chmodSync(folder, 0o755);
  mkdirSync("/run/vivarium");
  const log = createLog("slots", "warn");
  const host = await readHostNetwork(["127.0.0.1"]);
  const gatewayUid = await findUid(GATEWAY_USER);
  await prepareHostNetwork(host, gatewayUid);
  const network = createNetwork({
    ...{ host, log, closeSmtp: false, expectGatewayMs: 0 },
    keep: async () => {},
  });
  const pool = new NamespacePool({ owner: folder, limit: SLOTS, network, log });
  const server = fastify({ forceCloseConnections: true });
  registerGatewayRoutes(server, network);
  const socket = join(folder, "gateway.sock");
  await listenForGateway(server, socket, gatewayUid);
  const gateway = startGateway(socket);
  gateway.once("exit", (code, signal) => fail(`the gateway ended: ${signal ?? code}`));
  // Slots are kept while a gateway is away that may still serve them: whoever goes on meanwhile runs out of them.
  const connected = () =>
    eventually(() => {
      if (!network.link.isConnected) throw new Error("the gateway is not connected");
    }, 30_000);
  try {
    await connected();
    const live = async (number: number) => {
      await connected();
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
    await settle();
    const before = countAll(Number(gateway.pid));
    console.log("before", JSON.stringify(before));
    await many(rounds, live);
    await settle();
    const after = countAll(Number(gateway.pid));
    console.log(`after ${rounds}`, JSON.stringify(after));
    tell(before, after);
  } finally {
    await pool.close();
    gateway.removeAllListeners("exit").kill("SIGKILL");
    await server.close();
    rmSync(folder, { recursive: true });
  }
  const left = count("ip", "netns", "list");
  if (left > 0) fail(`${left} namespaces are left at the end`);
  process.exit();
}

function startGateway(socket: string): ChildProcess {
  const env = {
    VIV_GATEWAY_SOCKET: socket,
    VIV_GATEWAY_USER: GATEWAY_USER,
    VIV_INGRESS_LISTEN: "127.0.0.1:0",
    VIV_LOG_LEVEL: "warn",
    PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
  };
  return spawn(process.execPath, ["--no-warnings", GATEWAY], {
    env,
    stdio: ["ignore", "inherit", "inherit"],
  });
}

/** A visitor whom no guest answers: his connection stays in the host's table until it is forgotten with the slot. */
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

/** The pool is full again, and the gateway has closed what it listened on. */
function settle(): Promise<void> {
  return sleep(5_000);
}

function tell(before: Counts, after: Counts): void {
  for (const what of Object.keys(before) as (keyof Counts)[]) {
    // Descriptors and flows breathe a little; a leak would be thousands.
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
