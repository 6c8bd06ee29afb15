/** The only place of the node daemon that constructs things. */
import { chmod, chown, mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { DEFAULT_SIZE } from "@vivarium/contract/api/limits";
import type { Log } from "@vivarium/kit/log";
import { type FastifyBaseLogger, fastify } from "fastify";
import type { NodeConfig } from "./config.ts";
import { DiskGate } from "./disks/gate.ts";
import { prepareCgroups } from "./host/cgroup.ts";
import { NamespacePool } from "./host/namespace-pool.ts";
import { prepareHostNetwork, readHostNetwork } from "./host/netns.ts";
import { prepareQemuRoot } from "./host/qemu-root.ts";
import { run } from "./host/run.ts";
import { machinesDir } from "./machines/journal.ts";
import { reconcile } from "./machines/reconcile.ts";
import { continueWhenThereIsRoom } from "./machines/space.ts";
import type { StartDeps } from "./machines/start.ts";
import { MachineTable } from "./machines/table.ts";
import { WarmPool } from "./machines/warm-pool.ts";
import { registerRoutes } from "./server/routes.ts";
import { Baselines, baselineKey } from "./snapshots/baselines.ts";
import { SnapshotTable } from "./snapshots/table.ts";

/** What a create without a template and a size starts. */
const HOT = baselineKey("base", DEFAULT_SIZE);
const BODY_BYTES = 4 * 1024 * 1024;
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
  await prepareHostNetwork();
  const host = await readHostNetwork();
  const namespaces = new NamespacePool({ owner: config.dataDir, limit: config.maxMachines * 8, host, log });
  const table = new MachineTable();
  const baselines = new Baselines({ imagesDir: config.imagesDir, qemu, log });
  await baselines.read();
  const snapshots = new SnapshotTable({ dataDir: config.dataDir, log });
  const gate = new DiskGate([machinesDir(config.dataDir), config.dataDir], config.diskFloorBytes);
  const pool = new WarmPool({ config, qemu, baselines, namespaces, gate, log }, [HOT]);
  const deps: StartDeps = { config, qemu, baselines, snapshots, pool, namespaces, gate, table, log };
  await reconcile(deps);
  const stopping = new AbortController();
  const background = [
    continueWhenThereIsRoom(deps, stopping.signal),
    pool.run(stopping.signal),
    snapshots.lookThrough(),
  ];

  const server = fastify({
    loggerInstance: log as FastifyBaseLogger,
    bodyLimit: BODY_BYTES,
    http: { maxHeaderSize: HEADER_BYTES },
    disableRequestLogging: true,
  });
  registerRoutes(server, deps);
  await listen(server, config);
  namespaces.fill();
  return {
    deps,
    async close() {
      stopping.abort();
      await server.close();
      await Promise.all(background);
      // Whoever asked may have gone, and what it asked for is still under way.
      await Promise.allSettled([...table.stopping.values()]);
      await namespaces.close();
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
