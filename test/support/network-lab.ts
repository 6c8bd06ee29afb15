/**
 * Runs the network half of a node without machines: slots of the real pool, the host's table and a real gateway, in
 * namespaces that nothing else on this host uses.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createLog } from "@vivarium/kit/log";
import { UndoStack } from "@vivarium/kit/undo-stack";
import { fastify } from "fastify";
import { createNetwork } from "../../packages/node/src/app.ts";
import { Cgroups } from "../../packages/node/src/host/cgroup.ts";
import { THIS_HOST } from "../../packages/node/src/host/cgroup-parent.ts";
import { prepareHostNetwork, readHostNetwork } from "../../packages/node/src/host/host-network.ts";
import { NamespacePool } from "../../packages/node/src/network/namespace-pool.ts";
import type { NodeNetwork } from "../../packages/node/src/network/node-network.ts";
import { registerGatewayRoutes } from "../../packages/node/src/server/gateway-routes.ts";
import { findUid, listenForGateway } from "../../packages/node/src/server/listen.ts";
import { eventually } from "./eventually.ts";

const GATEWAY = fileURLToPath(new URL("../../packages/gateway/src/main.ts", import.meta.url));
const GATEWAY_USER = "nobody";
const CONNECTED_WITHIN_MS = 30_000;
export const INGRESS_PORT = 7401;

export interface NetworkLab {
  /** Owner of the slots: a directory that is removed with the lab. */
  folder: string;
  network: NodeNetwork;
  pool: NamespacePool;
  gateway: ChildProcess;
  /**
   * Waits for the gateway: in its absence the slots that it may still serve stay reserved, and tests run out of slots.
   */
  connected(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Command that runs a program of this repository in its own namespaces, of processes too: freeing a slot kills all
 * processes of its uid, which a service beside this one uses as well.
 */
export function inNamespacesOfItsOwn(program: string, args: string[]): string[] {
  const script = 'mount -t tmpfs none /run && ip link set lo up && exec "$@"';
  return [
    ...["unshare", "--net", "--mount", "--pid", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"],
    ...[process.execPath, "--no-warnings", program, ...args],
  ];
}

/** Starts the lab; only in a program that was started by `inNamespacesOfItsOwn`. */
export async function startNetworkLab(init: { slots: number; resolver: string }): Promise<NetworkLab> {
  const undo = new UndoStack();
  try {
    return await build(undo, init);
  } catch (error) {
    await undo.unwind();
    throw error;
  }
}

async function build(undo: UndoStack, init: { slots: number; resolver: string }): Promise<NetworkLab> {
  const folder = mkdtempSync(join(tmpdir(), "viv-lab-"));
  undo.push("folder", () => rmSync(folder, { recursive: true }));
  chmodSync(folder, 0o755);
  mkdirSync("/run/vivarium");
  const log = createLog("lab", "warn");
  const host = await readHostNetwork({ resolvers: [init.resolver] });
  const gatewayUid = await findUid(GATEWAY_USER);
  await prepareHostNetwork(host, gatewayUid);
  const network = createNetwork({
    ...{ host, log, closeSmtp: false, expectGatewayMs: 0 },
    keep: async () => {},
  });
  const server = fastify({ forceCloseConnections: true });
  registerGatewayRoutes(server, network);
  const socket = join(folder, "gateway.sock");
  await listenForGateway(server, socket, gatewayUid);
  undo.push("server", () => server.close());
  const gateway = startGateway(socket);
  undo.push("gateway", () => end(gateway));
  const pool = new NamespacePool({
    ...{ owner: folder, limit: init.slots, network, log },
    // The groups of slots with these numbers are those of a service beside this lab.
    cgroups: new Cgroups({ ...THIS_HOST, root: folder }, { lack: "no machine runs here" }),
  });
  undo.push("pool", () => pool.close());
  const connected = () =>
    eventually(() => {
      if (!network.link.isConnected) throw new Error("the gateway is not connected");
    }, CONNECTED_WITHIN_MS);
  await connected();
  return { ...{ folder, network, pool, gateway, connected }, close: () => undo.unwind() };
}

function startGateway(socket: string): ChildProcess {
  const env = {
    VIV_GATEWAY_SOCKET: socket,
    VIV_GATEWAY_USER: GATEWAY_USER,
    VIV_INGRESS_LISTEN: `127.0.0.1:${INGRESS_PORT}`,
    VIV_LOG_LEVEL: "warn",
    PATH: "/usr/sbin:/usr/bin:/sbin:/bin",
  };
  const argv = ["--no-warnings", GATEWAY];
  // Output goes to standard error, since standard output may be for results.
  return spawn(process.execPath, argv, { env, stdio: ["ignore", 2, 2] });
}

/** Ends the gateway. The exit listeners are removed first, since this exit is expected. */
async function end(gateway: ChildProcess): Promise<void> {
  gateway.removeAllListeners("exit");
  if (gateway.exitCode !== null || gateway.signalCode !== null) return;
  const gone = once(gateway, "exit");
  gateway.kill("SIGKILL");
  await gone;
}
