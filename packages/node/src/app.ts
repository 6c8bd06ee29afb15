/** The only place of the node daemon that constructs things. */
import { mkdir } from "node:fs/promises";
import { DEFAULT_SIZE } from "@vivarium/contract/api/limits";
import type { Log } from "@vivarium/kit/log";
import { type FastifyBaseLogger, type FastifyInstance, fastify } from "fastify";
import type { NodeConfig } from "./config.ts";
import { DiskGate } from "./disks/gate.ts";
import { prepareCgroups } from "./host/cgroup.ts";
import { claimSlots, waitForOlderClaims } from "./host/claims.ts";
import { makeRoomForFlows } from "./host/conntrack.ts";
import { type HostNetwork, prepareHostNetwork, readHostNetwork } from "./host/host-network.ts";
import { NamespacePool } from "./host/namespace-pool.ts";
import { prepareQemuRoot } from "./host/qemu-root.ts";
import { machinesDir } from "./machines/journal.ts";
import { writeNetwork, writePins } from "./machines/network-journal.ts";
import { reconcile } from "./machines/reconcile.ts";
import { continueWhenThereIsRoom } from "./machines/space.ts";
import type { StartDeps } from "./machines/start.ts";
import { MachineTable } from "./machines/table.ts";
import { WarmPool } from "./machines/warm-pool.ts";
import { EgressLog } from "./network/egress-log.ts";
import { keepFlowLog } from "./network/flow-log.ts";
import { GatewayLink } from "./network/gateway-link.ts";
import { readPreviews, writePreviews } from "./network/kept-previews.ts";
import { Networks, type NetworksInit } from "./network/networks.ts";
import type { NodeNetwork } from "./network/node-network.ts";
import { Previews, type PreviewsInit } from "./network/previews.ts";
import { inRanges } from "./network/ranges.ts";
import { Reporter, type ReporterDeps } from "./network/report.ts";
import { Wakes } from "./network/wakes.ts";
import { registerGatewayRoutes } from "./server/gateway-routes.ts";
import { findUid, listenForControl, listenForGateway } from "./server/listen.ts";
import { registerRoutes } from "./server/routes.ts";
import { Baselines, baselineKey } from "./snapshots/baselines.ts";
import { verifyLoadable } from "./snapshots/manifest.ts";
import { SumsThread } from "./snapshots/sums-thread.ts";
import { SnapshotTable } from "./snapshots/table.ts";
import { Verifications } from "./snapshots/verify-together.ts";

/** What a create without a template and a size starts. */
const HOT = baselineKey("base", DEFAULT_SIZE);
const BODY_BYTES = 4 * 1024 * 1024;
/** A gateway that outlived the daemon's last life is back long before. */
const EXPECT_GATEWAY_MS = 10_000;
/** A query that is too long for an agent is refused in words. */
const HEADER_BYTES = 64 * 1024;
const CLOSE_IDLE_MS = 50;
/** Longer than a supervisor waits for a node that it has told to end. */
const OLDER_NODE_ENDS_MS = 20_000;

export interface NodeApp {
  deps: StartDeps;
  /** Stops serving. Machines go on running and are adopted at the next start. */
  close(): Promise<void>;
}

export async function startApp(config: NodeConfig, log: Log): Promise<NodeApp> {
  const leaveSlots = await claimSlots(config.dataDir);
  await waitForOlderClaims(config.dataDir, OLDER_NODE_ENDS_MS);
  await mkdir(machinesDir(config.dataDir), { recursive: true, mode: 0o711 });
  const qemu = await prepareQemuRoot(config.dataDir);
  await prepareCgroups();
  const host = await readHostNetwork(config.resolvers, config.neverRanges);
  const gatewayUid = await findUid(config.gatewayUser);
  const { lack } = await prepareHostNetwork(host, gatewayUid);
  if (lack) log.warn(`this kernel has no timeouts for connections (CONFIG_NF_CONNTRACK_TIMEOUT): ${lack}`);
  await makeRoomForFlows(config.maxMachines).catch((err: unknown) =>
    log.warn({ err }, "the host's table of connections has less room than these machines may fill"),
  );
  const table = new MachineTable();
  const network = createNetwork({
    host,
    pidOf: (machineId) => table.running.get(machineId)?.process.pid,
    closeSmtp: config.closeSmtp,
    expectGatewayMs: EXPECT_GATEWAY_MS,
    keep: (machineId, kept) => writeNetwork(config.dataDir, machineId, kept),
    keepPins: (machineId, pins) => writePins(config.dataDir, machineId, pins),
    previews: {
      table: await readPreviews({ log }, config.dataDir),
      keep: (table) => writePreviews(config.dataDir, table),
    },
    log,
  });
  const namespaces = new NamespacePool({
    owner: config.dataDir,
    limit: config.maxMachines * 8,
    network,
    log,
  });
  const sums = new SumsThread({ log });
  const baselines = new Baselines({ imagesDir: config.imagesDir, qemu, sums, log });
  await baselines.read();
  const snapshots = new SnapshotTable({ dataDir: config.dataDir, log });
  const gate = new DiskGate([machinesDir(config.dataDir), config.dataDir], config.diskFloorBytes);
  const verifications = new Verifications((loadable) => verifyLoadable({ qemu, sums }, loadable));
  const shared = { config, qemu, sums, baselines, snapshots, verifications, namespaces, gate, table, log };
  const pool = new WarmPool(shared, [HOT]);
  const deps: StartDeps = { ...shared, pool, network };
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
  keepConnections(server);
  registerRoutes(server, deps);
  await listenForControl(server, config);
  const gatewayServer = fastify({
    loggerInstance: log as FastifyBaseLogger,
    bodyLimit: BODY_BYTES,
    forceCloseConnections: true,
    disableRequestLogging: true,
  });
  keepConnections(gatewayServer);
  registerGatewayRoutes(gatewayServer, network);
  await listenForGateway(gatewayServer, config.gatewaySocketPath, gatewayUid);
  namespaces.fill();
  return {
    deps,
    async close() {
      stopping.abort();
      network.wakes.close();
      await closeServer(server);
      await Promise.all(background);
      // Whoever asked may have gone, and what it asked for is still under way.
      await Promise.allSettled([...table.stopping.values()]);
      await namespaces.close();
      await sums.close();
      await gatewayServer.close();
      await leaveSlots();
    },
  };
}

/**
 * Callers keep their connections. One that is closed for being idle could be closed under a request that is on its way, and
 * whether that was carried out nobody would know. (Where fastify is told 0 it takes its own default.)
 */
function keepConnections({ server }: FastifyInstance): void {
  server.keepAliveTimeout = 0;
}

/** A connection whose answer was under way becomes idle later, and then nobody else closes it. */
async function closeServer(fastifyServer: FastifyInstance): Promise<void> {
  const again = setInterval(() => fastifyServer.server.closeIdleConnections(), CLOSE_IDLE_MS);
  await fastifyServer.close().finally(() => clearInterval(again));
}

/** This node's network, of what the host and the configuration say. */
interface NetworkInit extends Omit<NetworksInit, "link"> {
  host: HostNetwork;
  /** How long a gateway of before this start may take to come back. */
  expectGatewayMs: number;
  /** Absent: routes are none at first, and end with the process. */
  previews?: PreviewsInit;
  pidOf?: ReporterDeps["pidOf"];
  log: Log;
}

export function createNetwork(init: NetworkInit): NodeNetwork {
  const { host, expectGatewayMs, pidOf = () => undefined, log: say } = init;
  const previews = new Previews(init.previews);
  const link: GatewayLink = new GatewayLink({
    expectGatewayMs,
    compose: (version) => ({
      version,
      slots: networks.toGatewaySlots(),
      routes: previews.routes,
      never: host.never,
      resolvers: host.resolvers,
    }),
  });
  const networks = new Networks({ ...init, link });
  const log = new EgressLog();
  const reporter = new Reporter({ networks, log, isNever: inRanges(host.never), pidOf, say });
  return { networks, link, previews, wakes: new Wakes(), log, reporter };
}
