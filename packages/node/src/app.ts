/** The only place of the node daemon that constructs things. */
import { chmod, chown, mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { DEFAULT_SIZE } from "@vivarium/contract/api/limits";
import type { Log } from "@vivarium/kit/log";
import { type FastifyBaseLogger, fastify } from "fastify";
import type { NodeConfig } from "./config.ts";
import { DiskGate } from "./disks/gate.ts";
import { prepareCgroups } from "./host/cgroup.ts";
import { prepareHostNetwork, readHostNetwork } from "./host/host-network.ts";
import { NamespacePool } from "./host/namespace-pool.ts";
import { prepareQemuRoot } from "./host/qemu-root.ts";
import { run } from "./host/run.ts";
import { machinesDir } from "./machines/journal.ts";
import { writeNetwork } from "./machines/network-journal.ts";
import { reconcile } from "./machines/reconcile.ts";
import { continueWhenThereIsRoom } from "./machines/space.ts";
import type { StartDeps } from "./machines/start.ts";
import { MachineTable } from "./machines/table.ts";
import { WarmPool } from "./machines/warm-pool.ts";
import { keepFlowLog } from "./network/flow-log.ts";
import { createNetwork } from "./network/start.ts";
import { registerGatewayRoutes } from "./server/gateway-routes.ts";
import { registerRoutes } from "./server/routes.ts";
import { Baselines, baselineKey } from "./snapshots/baselines.ts";
import { SnapshotTable } from "./snapshots/table.ts";

/** What a create without a template and a size starts. */
const HOT = baselineKey("base", DEFAULT_SIZE);
const BODY_BYTES = 4 * 1024 * 1024;
/** A gateway that outlived the daemon's last life is back long before. */
const EXPECT_GATEWAY_MS = 10_000;
/** A query that is too long for an agent is refused in words. */
const HEADER_BYTES = 64 * 1024;

export interface NodeApp {
  deps: StartDeps;
  /** Stops serving. Machines go on running and are adopted at the next start. */
  close(): Promise<void>;
}

export async function startApp(config: NodeConfig, log: Log): Promise<NodeApp> {
  await mkdir(machinesDir(config.dataDir), { recursive: true, mode: 0o711 });
  const qemu = await prepareQemuRoot(config.dataDir);
  await prepareCgroups();
  const host = await readHostNetwork(config.resolvers);
  const gatewayUid = await findUid(config.gatewayUser);
  await prepareHostNetwork(host, gatewayUid);
  const network = createNetwork({
    host,
    closeSmtp: config.closeSmtp,
    expectGatewayMs: EXPECT_GATEWAY_MS,
    keep: (machineId, kept) => writeNetwork(config.dataDir, machineId, kept),
    log,
  });
  const namespaces = new NamespacePool({
    owner: config.dataDir,
    limit: config.maxMachines * 8,
    network,
    log,
  });
  const table = new MachineTable();
  const baselines = new Baselines({ imagesDir: config.imagesDir, qemu, log });
  await baselines.read();
  const snapshots = new SnapshotTable({ dataDir: config.dataDir, log });
  const gate = new DiskGate([machinesDir(config.dataDir), config.dataDir], config.diskFloorBytes);
  const pool = new WarmPool({ config, qemu, baselines, namespaces, gate, log }, [HOT]);
  const deps: StartDeps = { config, qemu, baselines, snapshots, pool, namespaces, network, gate, table, log };
  await reconcile(deps);
  const stopping = new AbortController();
  const background = [
    continueWhenThereIsRoom(deps, stopping.signal),
    pool.run(stopping.signal),
    snapshots.lookThrough(),
    keepFlowLog({ networks: network.networks, log: network.log, say: log }, stopping.signal),
  ];

  const server = fastify({
    loggerInstance: log as FastifyBaseLogger,
    bodyLimit: BODY_BYTES,
    http: { maxHeaderSize: HEADER_BYTES },
    disableRequestLogging: true,
  });
  registerRoutes(server, deps);
  await listen(server, config);
  const gatewayServer = fastify({
    loggerInstance: log as FastifyBaseLogger,
    bodyLimit: BODY_BYTES,
    forceCloseConnections: true,
    disableRequestLogging: true,
  });
  registerGatewayRoutes(gatewayServer, network);
  await listenForGateway(gatewayServer, config.gatewaySocketPath, gatewayUid);
  namespaces.fill();
  return {
    deps,
    async close() {
      stopping.abort();
      network.wakes.close();
      await server.close();
      await Promise.all(background);
      await namespaces.close();
      await gatewayServer.close();
    },
  };
}

async function listen(server: { listen: (o: { path: string }) => Promise<string> }, config: NodeConfig) {
  await mkdir(path.dirname(config.socketPath), { recursive: true, mode: 0o755 });
  await rm(config.socketPath, { force: true });
  await server.listen({ path: config.socketPath });
  await chmod(config.socketPath, 0o660);
  if (config.controlUser === "") return;
  const gid = await run("id", ["-g", config.controlUser]).catch(() => null);
  if (gid !== null) await chown(config.socketPath, 0, Number(gid));
}

async function findUid(user: string): Promise<number | undefined> {
  if (user === "") return undefined;
  const uid = await run("id", ["-u", user]).catch(() => null);
  return uid === null ? undefined : Number(uid);
}

/** For the gateway's user and root alone: whoever speaks here says what machines may reach. */
async function listenForGateway(
  server: { listen: (o: { path: string }) => Promise<string> },
  socketPath: string,
  gatewayUid: number | undefined,
): Promise<void> {
  await mkdir(path.dirname(socketPath), { recursive: true, mode: 0o755 });
  await rm(socketPath, { force: true });
  await server.listen({ path: socketPath });
  await chmod(socketPath, 0o600);
  if (gatewayUid !== undefined) await chown(socketPath, gatewayUid, 0);
}
