/**
 * The network half of a node without machines: slots from the real pool, the host's table, and a real gateway, in
 * namespaces of their own, independent of everything else on this host.
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
  /** Owner of the slots; a folder that goes with the lab. */
  folder: string;
  network: NodeNetwork;
  pool: NamespacePool;
  gateway: ChildProcess;
  /** Slots stay reserved while a gateway is away that may still serve them: a test meanwhile runs out of slots. */
  connected(): Promise<void>;
  close(): Promise<void>;
}

/**
 * The command that runs a program of this repository in namespaces that nothing else uses. Includes processes: a
 * discarded slot kills all processes under its uid, and a service beside this one has the same uids.
 */
export function inNamespacesOfItsOwn(program: string, args: string[]): string[] {
  const script = 'mount -t tmpfs none /run && ip link set lo up && exec "$@"';
  return [
    ...["unshare", "--net", "--mount", "--pid", "--kill-child", "--mount-proc", "sh", "-c", script, "sh"],
    ...[process.execPath, "--no-warnings", program, ...args],
  ];
}

/** Only for a program that was started by that command. */
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
  const host = await readHostNetwork([init.resolver]);
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
  const pool = new NamespacePool({ owner: folder, limit: init.slots, network, log });
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
  // Its output goes to standard error: standard output may be for figures.
  return spawn(process.execPath, argv, { env, stdio: ["ignore", 2, 2] });
}

/** Removes the watcher of the exit first: this end is expected. */
async function end(gateway: ChildProcess): Promise<void> {
  gateway.removeAllListeners("exit");
  if (gateway.exitCode !== null || gateway.signalCode !== null) return;
  const gone = once(gateway, "exit");
  gateway.kill("SIGKILL");
  await gone;
}
