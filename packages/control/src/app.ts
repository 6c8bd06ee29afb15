/** The only place that constructs things. */

import { LIMITS } from "@vivarium/contract/api";
import { sleep } from "@vivarium/kit/clock";
import type { Log } from "@vivarium/kit/log";
import packageJson from "../package.json" with { type: "json" };
import { Authenticator } from "./access/authenticate.ts";
import { bootstrap } from "./access/bootstrap.ts";
import { loadPepper } from "./access/pepper.ts";
import { CommandLog } from "./audit/command-log.ts";
import { addAuditRoutes } from "./audit/routes.ts";
import { checkpointSnapshots } from "./checkpoints/kept-snapshots.ts";
import { addCheckpointRoutes } from "./checkpoints/routes.ts";
import { migrate } from "./db/migrate.ts";
import { type Database, openDatabase } from "./db/pool.ts";
import { isStoreUnavailable } from "./db/postgres-errors.ts";
import { untilStored } from "./db/retry.ts";
import { StoreWatch } from "./db/store-watch.ts";
import type { OwnHosts } from "./egress/entry.ts";
import type { EgressCaps } from "./egress/org-cap.ts";
import { addOrgCapRoutes } from "./egress/org-cap-routes.ts";
import { NetworkReports } from "./egress/reports.ts";
import { addEgressRoutes } from "./egress/routes.ts";
import { EventFeed } from "./events/feed.ts";
import { addEventRoutes } from "./events/routes.ts";
import { OutputQuotas } from "./exec/output-quota.ts";
import { addExecRoutes } from "./exec/routes.ts";
import { addFileRoutes } from "./files/routes.ts";
import { NodeClient } from "./fleet/node-client.ts";
import { NodeState } from "./fleet/node-state.ts";
import { createServer, type Server } from "./http/server.ts";
import { Upgrades } from "./http/upgrades.ts";
import { addGauges } from "./metrics/gauges.ts";
import { Meter } from "./metrics/meter.ts";
import { Operations } from "./operations/operations.ts";
import { PreviewPush } from "./previews/push.ts";
import { addPreviewRoutes } from "./previews/routes.ts";
import { loadPreviewKey } from "./previews/secrets.ts";
import { Turns } from "./previews/turns.ts";
import type { PreviewSite } from "./previews/urls.ts";
import { answerWakes } from "./previews/wakes.ts";
import { addProcessRoutes } from "./processes/routes.ts";
import { addRunRoutes } from "./runs/routes.ts";
import { addServiceRoutes } from "./service/routes.ts";
import { Activity } from "./sessions/activity.ts";
import { addLifecycleRoutes } from "./sessions/lifecycle-routes.ts";
import { Provisioner } from "./sessions/provision.ts";
import { sessionSnapshots } from "./sessions/remove-orphan-snapshots.ts";
import { addSessionRoutes } from "./sessions/routes.ts";
import { SessionSignals } from "./sessions/signals.ts";
import {
  CLOCK_PART,
  FIRST_PART,
  HOURLY_PARTS,
  IN_LINE_PARTS,
  runPart,
  TICK_PARTS,
} from "./sessions/sweep.ts";
import { templateSnapshots } from "./templates/kept-snapshots.ts";
import { addTemplateRoutes } from "./templates/routes.ts";
import { Attachments } from "./terminals/attachments.ts";
import { addTerminalRoutes } from "./terminals/routes.ts";

/** The ingress listener of a gateway that is told nothing. */
const LOCAL_SITE: PreviewSite = { isSecure: false, domain: "localhost", port: 7401 };
const NO_OWN_HOSTS: OwnHosts = { names: [], addresses: [], ranges: [] };
const NO_CAPS: EgressCaps = { sessionBytes: 0, orgBytes: 0, orgMaxBytes: 0 };
const TICK_MS = 2_000;
/** Deadlines are kept to this exactness. */
const CLOCK_MS = 500;
const FLUSH_MS = 250;
const WATCH_MS = 1_000;
const HOUR_MS = 3_600_000;
const IN_LINE_MS = 5_000;

export interface AppSettings {
  databaseUrl: string;
  nodeSocket: string;
  controlDir: string;
  /** Pace of the sweeps; 2 s unless a test is in a hurry. */
  tickMs?: number;
  /** Refuse pauses that no archive makes durable. */
  requireDurablePause?: boolean;
  /** Cap on the children of one fork. */
  forkChildren?: number;
  /** Where previews are reached; this host alone, unless it is told. */
  previewSite?: PreviewSite;
  /** Names and addresses of this deployment, which no egress policy may list. */
  ownHosts?: OwnHosts;
  /** How much sessions and organisations may send where they are told nothing; no cap, unless it is told. */
  egressCaps?: EgressCaps;
  /** No other control plane serves this database: leases that lapsed before this one began are nobody's. */
  isAlone?: boolean;
  /** How long a client of a terminal or a tunnel waits for its session; 25 s unless a test is in a hurry. */
  upgradeWaitMs?: number;
}

export interface App {
  server: Server;
  /** Set at the first start on a database: the key that was made. */
  mintedKey: string | undefined;
  /**
   * Starts the periodic work. What rests on rows waits until they are in line with the node: those of a backup may tell
   * deadlines that were moved since.
   */
  startSweeps(): void;
  /** Resolves once they are, or a node that does not answer was waited for. */
  inLine(): Promise<void>;
  meter: Meter;
  /** One look at all deadlines, for who cannot wait for the next. */
  lookAtClocks(): Promise<void>;
  close(): Promise<void>;
}

export async function createApp(settings: AppSettings, log: Log): Promise<App> {
  const db = openDatabase({ url: settings.databaseUrl, log });
  const { pepper, previewKey, mintedKey } = await prepareStore(db, settings.controlDir, log);
  const nodes = new NodeClient(settings.nodeSocket);
  const { forkChildren = LIMITS.forkChildrenDefault, requireDurablePause = false } = settings;
  const { previewSite = LOCAL_SITE, ownHosts = NO_OWN_HOSTS } = settings;
  const { egressCaps = NO_CAPS, upgradeWaitMs = LIMITS.upgradeWaitMs } = settings;
  const watchedDb = openDatabase({ url: settings.databaseUrl, log, connections: 1 });
  const parts = assemble({
    db,
    nodes,
    storeWatch: new StoreWatch({ db: watchedDb, isAlone: settings.isAlone }),
    pepper,
    previewKey,
    log,
    forkChildren,
    requireDurablePause,
    previewSite,
    ownHosts,
    egressCaps,
    upgradeWaitMs,
  });
  addGauges(parts);
  const server = await createServer(parts);
  addRoutes(server, parts);
  const stopping = new AbortController();
  const tickMs = settings.tickMs ?? TICK_MS;
  let inLine = Promise.resolve();
  let sweeping: Promise<unknown> = Promise.resolve();
  let stopFollowing = async () => {};
  let stopLooking = () => {};
  return {
    server,
    meter: parts.meter,
    mintedKey,
    startSweeps: () => {
      stopFollowing = parts.previewPush.followMoves();
      stopLooking = parts.eventFeed.followMoves(lookedInVain(log));
      const every = (ms: number, work: () => Promise<unknown>) => repeat(ms, stopping.signal, work);
      const looked = untilLooked(parts, tickMs, stopping.signal);
      inLine = bringInLine(parts, looked, stopping.signal);
      // Each part keeps its own time: one that waits for the node holds up no other.
      const onRows = () => [
        ...Object.entries(TICK_PARTS).map(([name, part]) => every(tickMs, () => runPart(parts, name, part))),
        every(Math.min(CLOCK_MS, tickMs), () => runPart(parts, "fire clocks", CLOCK_PART)),
        answerWakes(parts, stopping.signal),
      ];
      const always = [
        ...Object.entries(HOURLY_PARTS).map(([name, part]) =>
          every(HOUR_MS, () => runPart(parts, name, part)),
        ),
        every(Math.min(WATCH_MS, tickMs), () => parts.storeWatch.look().catch(() => undefined)),
        every(FLUSH_MS, () => parts.eventFeed.look().catch(lookedInVain(log))),
        every(FLUSH_MS, () => parts.activity.flush()),
        every(FLUSH_MS, () => parts.commandLog.flush()),
      ];
      const onceInLine = Promise.all([looked, inLine]).then(() => Promise.all(onRows()));
      sweeping = Promise.all([...always, onceInLine]);
    },
    inLine: () => inLine,
    lookAtClocks: async () => void (await runPart(parts, "fire clocks", CLOCK_PART)),
    close: async () => {
      stopping.abort();
      stopLooking();
      // A server waits for its answers to end; nobody but us ends these.
      await parts.eventFeed.stop();
      await server.close();
      await parts.attachments.stop();
      await parts.operations.stop();
      await parts.provisioner.stop();
      await sweeping;
      await stopFollowing();
      await parts.activity.flush();
      await parts.commandLog.flush();
      nodes.close();
      await db.destroy();
      await watchedDb.destroy();
    },
  };
}

/** The OpenAPI document of the interface, as YAML. Nothing is connected to: describing routes asks no dependency. */
export async function describeApi(log: Log): Promise<string> {
  const db = openDatabase({ url: "postgresql://localhost/none", log });
  const nodes = new NodeClient("/nonexistent/node.sock");
  const parts = assemble({
    db,
    nodes,
    storeWatch: new StoreWatch({ db }),
    pepper: Buffer.alloc(32),
    log,
    forkChildren: LIMITS.forkChildrenHard,
    requireDurablePause: false,
    previewKey: Buffer.alloc(32),
    previewSite: LOCAL_SITE,
    ownHosts: NO_OWN_HOSTS,
    egressCaps: NO_CAPS,
    upgradeWaitMs: LIMITS.upgradeWaitMs,
  });
  const server = await createServer(parts);
  addRoutes(server, parts);
  await server.ready();
  return server.swagger({ yaml: true });
}

/** Repeats the first look until it succeeds: of a node that does not answer nothing is known. */
async function untilLooked(parts: Parts, pauseMs: number, stopping: AbortSignal): Promise<void> {
  while (!stopping.aborted && !(await runPart(parts, "look at the node first", FIRST_PART)))
    await sleep(pauseMs, stopping);
}

/** What follows the first look, once; a node that does not answer holds up no request for long. */
async function bringInLine(parts: Parts, looked: Promise<void>, stopping: AbortSignal): Promise<void> {
  const over = new AbortController();
  const bring = () =>
    Promise.all(Object.entries(IN_LINE_PARTS).map(([name, part]) => runPart(parts, name, part)));
  // Without the first look they would take what the rows do not know for nobody's.
  const done = looked.then(() => (stopping.aborted ? [] : bring()));
  await Promise.race([done, sleep(IN_LINE_MS, AbortSignal.any([stopping, over.signal]))]);
  over.abort();
}

type Parts = ReturnType<typeof assemble>;

interface Base {
  db: Database;
  nodes: NodeClient;
  storeWatch: StoreWatch;
  pepper: Buffer;
  log: Log;
  forkChildren: number;
  requireDurablePause: boolean;
  previewKey: Buffer;
  previewSite: PreviewSite;
  ownHosts: OwnHosts;
  egressCaps: EgressCaps;
  upgradeWaitMs: number;
}

function assemble(settled: Base) {
  const base = { ...settled, meter: new Meter() };
  const signals = new SessionSignals();
  const activity = new Activity(base);
  return {
    ...base,
    version: packageJson.version,
    signals,
    authenticator: new Authenticator(base),
    node: new NodeState(base.nodes),
    activity,
    eventFeed: new EventFeed({ ...base, signals }),
    networkReports: new NetworkReports({ ...base, activity }),
    previewPush: new PreviewPush({ ...base, signals }),
    exposeTurns: new Turns(),
    commandLog: new CommandLog(base),
    outputQuotas: new OutputQuotas(),
    attachments: new Attachments({ ...base, signals }),
    upgrades: new Upgrades(base),
    operations: new Operations({ ...base, signals }),
    provisioner: new Provisioner({ ...base, signals }),
    unknownSince: new Map<string, number>(),
    orphansSince: new Map<string, number>(),
    strangers: new Set<string>(),
    leasesKept: new Set<string>(),
    snapshotOwners: [sessionSnapshots, checkpointSnapshots, templateSnapshots],
  };
}

function addRoutes(server: Server, parts: Parts): void {
  addServiceRoutes(server, parts);
  addSessionRoutes(server, parts);
  addLifecycleRoutes(server, parts);
  addRunRoutes(server, parts);
  addExecRoutes(server, parts);
  addFileRoutes(server, parts);
  addProcessRoutes(server, parts);
  addTerminalRoutes(server, parts);
  addAuditRoutes(server, parts);
  addCheckpointRoutes(server, parts);
  addTemplateRoutes(server, parts);
  addEgressRoutes(server, parts);
  addOrgCapRoutes(server, parts);
  addPreviewRoutes(server, parts);
  addEventRoutes(server, parts);
}

async function prepareStore(db: Database, controlDir: string, log: Log) {
  const pepper = await loadPepper(controlDir);
  // The database may still be starting beside us.
  const applied = await untilStored(() => migrate(db));
  if (applied.length > 0) log.info({ migrations: applied }, "schema brought up to date");
  const { mintedKey } = await bootstrap({ db, pepper, controlDir });
  return { pepper, previewKey: await loadPreviewKey(controlDir), mintedKey };
}

/** A database that is away is told of by the sweeps, which ask less often. */
function lookedInVain(log: Log): (err: unknown) => void {
  return (err) => {
    if (isStoreUnavailable(err)) log.debug({ err }, "events are published once the database answers");
    else log.warn({ err }, "events could not be published; it is tried again");
  };
}

async function repeat(ms: number, until: AbortSignal, work: () => Promise<unknown>): Promise<void> {
  while (!until.aborted) {
    await work();
    await sleep(ms, until);
  }
}
