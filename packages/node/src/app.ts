/** Constructs and connects all parts of the node daemon. */
import { mkdir } from "node:fs/promises";
import type { Server } from "node:http";
import { DEFAULT_SIZE } from "@vivarium/contract/api/limits";
import { isOpen } from "@vivarium/kit/ipv4-openings";
import { findRange } from "@vivarium/kit/ipv4-ranges";
import type { Log } from "@vivarium/kit/log";
import { KIB, MIB } from "@vivarium/kit/sizes";
import { type Dial, dialPublicExcept } from "@vivarium/oci/dial";
import { type FastifyBaseLogger, type FastifyHttpOptions, type FastifyInstance, fastify } from "fastify";
import { Archives } from "./archives/archives.ts";
import { Builds } from "./builds/builds.ts";
import type { NodeConfig } from "./config.ts";
import { DiskGate } from "./disks/gate.ts";
import { openCgroups } from "./host/cgroup.ts";
import { THIS_HOST } from "./host/cgroup-parent.ts";
import { claimSlots, waitForOlderClaims } from "./host/claims.ts";
import { raiseFlowLimit } from "./host/conntrack.ts";
import { prepareHostNetwork, readHostChanges, readHostNetwork } from "./host/host-network.ts";
import { keepHostNetwork } from "./host/keep-host-network.ts";
import { chooseAccelerators } from "./host/kvm.ts";
import { prepareQemuRoot } from "./host/qemu-root.ts";
import type { MachineDeps } from "./machines/deps.ts";
import { followClock } from "./machines/follow-clock.ts";
import { GuestSettingsFile } from "./machines/guest-settings.ts";
import { machinesDir } from "./machines/journal.ts";
import { removeLeftovers } from "./machines/leftovers.ts";
import { writeNetwork, writePins } from "./machines/network-journal.ts";
import { continueWhenSpaceIsFree } from "./machines/out-of-space.ts";
import { reconcile } from "./machines/reconcile.ts";
import { MachineTable } from "./machines/table.ts";
import { WarmPool } from "./machines/warm-pool.ts";
import { Connections } from "./network/connections.ts";
import { EgressLog } from "./network/egress-log.ts";
import { keepFlowLog } from "./network/flow-log.ts";
import { GatewayLink } from "./network/gateway-link.ts";
import { NamespacePool } from "./network/namespace-pool.ts";
import { Networks, type NetworksInit } from "./network/networks.ts";
import type { NodeNetwork } from "./network/node-network.ts";
import { Previews, type PreviewsInit, readPreviews, writePreviews } from "./network/previews.ts";
import { Reporter, type ReporterDeps } from "./network/report.ts";
import { WakeRequests } from "./network/wake-requests.ts";
import { registerBuildRoutes } from "./server/build-routes.ts";
import { registerGatewayRoutes } from "./server/gateway-routes.ts";
import { findUid, listenForControl, listenForGateway } from "./server/listen.ts";
import { registerRoutes } from "./server/routes.ts";
import { Baselines } from "./snapshots/baselines.ts";
import { baselineKey } from "./snapshots/find-baselines.ts";
import { verifyLoadable } from "./snapshots/manifest.ts";
import { SumsThread } from "./snapshots/sums-thread.ts";
import { SnapshotTable } from "./snapshots/table.ts";
import { Verifications } from "./snapshots/verify-together.ts";
import { prepareVolumes } from "./volumes/images.ts";
import { Volumes } from "./volumes/volumes.ts";

/** Key of the baseline that a create without a template and a size uses. */
const HOT = baselineKey("base", DEFAULT_SIZE);
const BODY_BYTES = 4 * MIB;
/** How long to wait for a gateway that outlived the daemon's last process to reconnect. */
const EXPECT_GATEWAY_MS = 10_000;
/** Most bytes of a request's headers: more than an agent takes, so that a longer query gets a proper error. */
const HEADER_BYTES = 64 * KIB;
/** How often idle connections are closed while the server closes. */
const CLOSE_IDLE_MS = 50;
/** How long to wait for an older node to end: longer than a supervisor waits for a node that it stops. */
const OLDER_NODE_ENDS_MS = 20_000;

export interface NodeApp {
  deps: MachineDeps;
  /** Stops serving. Machines continue to run and are adopted at the next start. */
  close(): Promise<void>;
}

export async function startApp(config: NodeConfig, log: Log): Promise<NodeApp> {
  // Refuses to start where KVM exists and may not be used: what is saved with it would not continue.
  const accelerators = chooseAccelerators(config.accelerator);
  const guestSettings = await GuestSettingsFile.open(config.guestSettingsFile, log);
  const releaseSlots = await claimSlots(config.dataDir);
  await waitForOlderClaims(config.dataDir, OLDER_NODE_ENDS_MS);
  await mkdir(machinesDir(config.dataDir), { recursive: true, mode: 0o711 });
  await prepareVolumes(config.dataDir);
  const qemu = await prepareQemuRoot(config.dataDir);
  const cgroups = await openCgroups(THIS_HOST, (reason) => {
    if (reason === undefined) log.info("machines get their limits again");
    else log.error(`no machine starts, since its limits cannot be set: ${reason}`);
  });
  if (cgroups.refusal !== undefined)
    log.error(`no machine starts until its limits can be set; each start tries again: ${cgroups.refusal}`);
  else if (cgroups.lack !== undefined)
    log.warn(
      `machines run without limits of a cgroup, so neighbours can slow each other down: ${cgroups.lack}`,
    );
  const host = await readHostNetwork(config);
  const gatewayUid = await findUid(config.gatewayUser);
  const { lack } = await prepareHostNetwork(host, gatewayUid);
  if (lack) log.warn(`this kernel has no timeouts for connections (CONFIG_NF_CONNTRACK_TIMEOUT): ${lack}`);
  await raiseFlowLimit(config.maxMachines).catch((err: unknown) =>
    log.warn({ err }, "the host's table of connections has less room than these machines may fill"),
  );
  const changes = await readHostChanges();
  const table = new MachineTable(cgroups);
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
    cgroups,
    network,
    log,
  });
  const sums = new SumsThread({ log });
  const baselines = new Baselines({ imagesDir: config.imagesDir, dataDir: config.dataDir, qemu, log });
  await baselines.read();
  const snapshots = new SnapshotTable({ dataDir: config.dataDir, log });
  const gate = new DiskGate([machinesDir(config.dataDir), config.dataDir], config.diskFloorBytes);
  const volumes = new Volumes({ dataDir: config.dataDir, gate });
  const verifications = new Verifications((loadable) => verifyLoadable({ qemu, sums }, loadable));
  const shared = {
    config,
    qemu,
    cgroups,
    sums,
    baselines,
    snapshots,
    verifications,
    namespaces,
    gate,
    volumes,
    table,
    log,
  };
  const pool = new WarmPool(shared, [HOT]);
  const deps: MachineDeps = { ...shared, pool, network, guestSettings };
  await reconcile(deps);
  // Now that no machine of an earlier daemon works for a build any more.
  const builds = await Builds.open({
    ...{ config, qemu, cgroups, gate, accelerators, log },
    giveUpOne: () => pool.giveUpOne(),
    agentOf: (machineId) => table.getRunning(machineId).agent,
    dial: dialFor(config),
  });
  const archives = new Archives({
    ...{ baselines, snapshots, gate, log },
    niceness: config.archiveNiceness,
    crashAt: config.crashAt,
    dataDir: config.dataDir,
  });
  const stopping = new AbortController();
  const background = [
    continueWhenSpaceIsFree(deps, stopping.signal),
    followClock(deps, stopping.signal),
    pool.run(stopping.signal),
    removeLeftovers(deps, stopping.signal),
    snapshots.checkAll(),
    baselines.checkAll(stopping.signal),
    keepHostNetwork({ host, gatewayUid, changes, log }, stopping.signal),
    keepFlowLog({ networks: network.networks, log: network.log, say: log }, stopping.signal),
  ];

  const server = makeServer(log, { http: { maxHeaderSize: HEADER_BYTES } });
  registerRoutes(server, { ...deps, archives });
  registerBuildRoutes(server, builds);
  await listenForControl(server, config);
  const gatewayServer = makeServer(log, { forceCloseConnections: true });
  registerGatewayRoutes(gatewayServer, network);
  await listenForGateway(gatewayServer, config.gatewaySocketPath, gatewayUid);
  namespaces.fill();
  return {
    deps,
    async close() {
      stopping.abort();
      network.wakes.close();
      await archives.close();
      await closeServer(server);
      await builds.close();
      await Promise.all(background);
      // A stop continues after its caller disconnected.
      await Promise.allSettled([...table.stopping.values()]);
      await namespaces.close();
      await sums.close();
      await baselines.close();
      await gatewayServer.close();
      await releaseSlots();
    },
  };
}

/** Connects to registries of the internet, and to none in a range that the operator has closed. */
function dialFor({ neverRanges }: NodeConfig): Dial {
  return dialPublicExcept((address) => findRange(neverRanges, address) !== undefined);
}

/**
 * A server that keeps idle connections open: closing one could race with a request on its way, and the caller would not
 * know whether it was carried out. (Fastify takes its option `keepAliveTimeout` of 0 for its own default.)
 */
function makeServer(log: Log, options: FastifyHttpOptions<Server>): FastifyInstance {
  const loggerInstance = log as FastifyBaseLogger;
  const made = fastify({ loggerInstance, bodyLimit: BODY_BYTES, disableRequestLogging: true, ...options });
  made.server.keepAliveTimeout = 0;
  return made;
}

/** Closes the server, and connections that become idle after their last answer, which fastify would leave open. */
async function closeServer(fastifyServer: FastifyInstance): Promise<void> {
  const again = setInterval(() => fastifyServer.server.closeIdleConnections(), CLOSE_IDLE_MS);
  await fastifyServer.close().finally(() => clearInterval(again));
}

interface NetworkInit extends Omit<NetworksInit, "link" | "connections"> {
  /** How long a gateway that outlived the daemon's last process may take to reconnect. */
  expectGatewayMs: number;
  /** Routes of previews and how to keep them. Absent: none at first, and none are kept. */
  previews?: PreviewsInit;
  pidOf?: ReporterDeps["pidOf"];
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
      open: host.open,
      resolvers: host.resolvers,
    }),
  });
  const connections: Connections = new Connections(() => networks.sessionIds());
  const networks: Networks = new Networks({ ...init, link, connections });
  const log = new EgressLog();
  const isNever: ReporterDeps["isNever"] = ({ address, protocol, port }) =>
    findRange(host.never, address) !== undefined &&
    !(protocol === "tcp" && isOpen(host.open ?? [], address, port));
  const reporter = new Reporter({ networks, log, isNever, pidOf, say });
  return { networks, link, connections, previews, wakes: new WakeRequests(), log, reporter };
}
