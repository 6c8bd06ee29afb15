/** Composition root: the only file that constructs the parts of the control plane. */

import path from "node:path";
import { LIMITS } from "@vivarium/contract/api";
import { sleep } from "@vivarium/kit/clock";
import { KeyedQueue } from "@vivarium/kit/keyed-queue";
import type { Log } from "@vivarium/kit/log";
import type { ObjectStore } from "@vivarium/objects/store";
import packageJson from "../package.json" with { type: "json" };
import { Authenticator } from "./access/authenticate.ts";
import { WrongCredentials } from "./access/wrong-credentials.ts";
import { keepOnlyBaselines } from "./archive-records/store.ts";
import { removeArchived } from "./archives/remove-objects.ts";
import { addArchiveRoutes } from "./archives/routes.ts";
import { uploadArchive } from "./archives/upload.ts";
import { captureArtifact } from "./artifacts/capture.ts";
import type { ArtifactDeps } from "./artifacts/deps.ts";
import { linkKeyOf } from "./artifacts/links.ts";
import { removeObjects } from "./artifacts/remove-objects.ts";
import { addArtifactRoutes } from "./artifacts/routes.ts";
import { auditAnswer } from "./audit/answers.ts";
import { CommandLog } from "./audit/command-log.ts";
import { Denials } from "./audit/denials.ts";
import { auditKeyOf } from "./audit/entry.ts";
import { EntryQueue } from "./audit/entry-queue.ts";
import { extendChains, keepHeads } from "./audit/extend-chain.ts";
import { addAuditRoutes } from "./audit/routes.ts";
import type { BuildDeps } from "./builds/deps.ts";
import { addBuildRoutes } from "./builds/routes.ts";
import { runBuilds } from "./builds/run-builds.ts";
import { keepOnlyCheckpoints } from "./checkpoints/store.ts";
import { noteUses } from "./connections/note-uses.ts";
import { addConnectionRoutes } from "./connections/routes.ts";
import { type Database, openDatabase } from "./db/pool.ts";
import { isStoreUnavailable } from "./db/postgres-errors.ts";
import { untilStored } from "./db/retry.ts";
import { StoreWatch } from "./db/store-watch.ts";
import { Activity } from "./deadlines/activity.ts";
import type { OwnHosts } from "./egress/entry.ts";
import type { EgressCaps } from "./egress/org-cap.ts";
import { NetworkReports } from "./egress/reports.ts";
import { addEgressRoutes } from "./egress/routes.ts";
import { EventFeed } from "./events/feed.ts";
import { addEventRoutes } from "./events/routes.ts";
import { OutputQuotas } from "./exec/output-quota.ts";
import { addExecRoutes } from "./exec/routes.ts";
import { addFileRoutes } from "./files/routes.ts";
import { NodeClient } from "./fleet/node-client.ts";
import { NodeState } from "./fleet/node-state.ts";
import { onAnswered } from "./http/answered.ts";
import { OpenRequests } from "./http/open-requests.ts";
import { createServer, type Server } from "./http/server.ts";
import { Upgrades } from "./http/upgrades.ts";
import { JOB_KINDS, type JobKindName } from "./jobs/kinds.ts";
import { type JobHandler, JobQueue } from "./jobs/queue.ts";
import { endRequestsOfEnded } from "./keys/end-open-requests.ts";
import { addKeyRoutes } from "./keys/routes.ts";
import { Meter } from "./metrics/meter.ts";
import { addMoveRoutes } from "./moves/routes.ts";
import { type ObjectSettings, openLocalObjects, openObjects } from "./open-objects.ts";
import { Operations } from "./operations/operations.ts";
import { prepareStore } from "./prepare-store.ts";
import { PreviewPush } from "./previews/push.ts";
import { addPreviewRoutes } from "./previews/routes.ts";
import { answerWakeRequests } from "./previews/wake-requests.ts";
import { addProcessRoutes } from "./processes/routes.ts";
import { addProjectRoutes } from "./projects/routes.ts";
import { addRegistryRoutes } from "./registries/routes.ts";
import { addRunRoutes } from "./runs/routes.ts";
import { addCheckpointRoutes } from "./saved-state/routes.ts";
import { addTemplateRoutes } from "./saved-state/template-routes.ts";
import type { KekSource } from "./secrets/kek-source.ts";
import { Keyring } from "./secrets/keyring.ts";
import { rewrapAll } from "./secrets/rewrap.ts";
import { addKekRoutes } from "./secrets/routes.ts";
import { addGauges } from "./service/gauges.ts";
import { addServiceRoutes } from "./service/routes.ts";
import type { PreviewSite } from "./sessions/preview-urls.ts";
import { addSessionRoutes } from "./sessions/routes.ts";
import { SessionSignals } from "./sessions/signals.ts";
import { StartGate } from "./sessions/start-gate.ts";
import { findSnapshotsInUse } from "./sessions/store.ts";
import { Provisioner } from "./starts/provision.ts";
import { addStartRoutes } from "./starts/routes.ts";
import { keepOnlyVersions } from "./templates/store.ts";
import { Attachments } from "./terminals/attachments.ts";
import { addTerminalRoutes } from "./terminals/routes.ts";
import { addTokenRoutes } from "./tokens/routes.ts";
import { OrphanSnapshots } from "./upkeep/orphan-snapshots.ts";
import { type PausedAll, pauseAll } from "./upkeep/pause-all.ts";
import { Reconciler } from "./upkeep/reconcile.ts";
import {
  CLOCK_PART,
  FIRST_PART,
  HOURLY_PARTS,
  RECONCILE_PARTS,
  runPart,
  TICK_PARTS,
} from "./upkeep/sweep.ts";
import type { VolumeSizes } from "./volumes/quota.ts";
import { addVolumeRoutes } from "./volumes/routes.ts";

const TICK_MS = 2_000;
/** Interval of the deadline checks. */
const CLOCK_MS = 500;
const FLUSH_MS = 250;
const WATCH_MS = 1_000;
/** Requests of a credential end within two seconds of it (docs/spec/access.md). */
const ENDED_CREDENTIALS_MS = 1_000;
const REWRAP_MS = 10_000;
/** Interval at which entries are added to the chains of the audit log, and at which the heads are written to a file. */
const CHAIN_MS = 1_000;
const KEEP_HEADS_MS = 10_000;
const HOUR_MS = 3_600_000;
const RECONCILE_WAIT_MS = 5_000;

interface AppOptions {
  /** Wrong credentials of one address in a minute that are answered with 401, and not with 429; 0: all of them. */
  wrongCredentialsPerMinute: number;
  /** Sessions that an organisation may have creating or live at once, unless it has a ceiling of its own. */
  sessionCeiling: number;
  /** Every pause waits until its archive is complete, or is refused: see `MoveDeps`. */
  requireDurablePause: boolean;
  /** Whether saved states are kept in the object store, too. Without a key-encryption key none are. */
  hasArchives: boolean;
  /** Whether unused saved states are packed into a directory when the node's disk is nearly full. */
  hasWarmTier: boolean;
  /** Cap on the children of one fork. */
  forkChildren: number;
  volumeSizes: VolumeSizes;
  /** Scheme, domain and port under which visitors reach previews. */
  previewSite: PreviewSite;
  /** Names and addresses of this deployment, which no egress policy may list. */
  ownHosts: OwnHosts;
  /** Default caps on what sessions and organisations may send; 0: no cap. */
  egressCaps: EgressCaps;
  /** How long a client of a terminal or a tunnel waits for its session. */
  upgradeWaitMs: number;
  /** Address under which clients reach this service, without a slash at its end. */
  publicUrl: string;
}

const DEFAULTS: AppOptions = {
  wrongCredentialsPerMinute: LIMITS.wrongCredentialsPerMinute,
  sessionCeiling: LIMITS.concurrentSessions,
  requireDurablePause: false,
  hasArchives: false,
  hasWarmTier: false,
  forkChildren: LIMITS.forkChildrenDefault,
  volumeSizes: { usualGb: LIMITS.volumeGb, maxGb: LIMITS.volumeMaxGb, orgGb: LIMITS.volumeGbPerOrg },
  // The ingress address of a gateway with default configuration: on this host only.
  previewSite: { isSecure: false, domain: "localhost", port: 7401 },
  ownHosts: { names: [], addresses: [], ranges: [], open: [] },
  egressCaps: { sessionBytes: 0, orgBytes: 0, orgMaxBytes: 0 },
  upgradeWaitMs: LIMITS.upgradeWaitMs,
  publicUrl: "http://127.0.0.1:7400",
};

export interface AppSettings extends Partial<AppOptions> {
  databaseUrl: string;
  nodeSocket: string;
  controlDir: string;
  /** Default: a directory in `controlDir`. */
  objects?: ObjectSettings;
  /** Beside a bucket: where the warm tier was before. */
  localObjectsDir?: string;
  /** Where the key-encryption keys are; default: there are none, and secrets are refused. */
  kekSource?: KekSource | undefined;
  /** Interval of the sweeps; default 2 s. */
  tickMs?: number;
  /** No other control plane serves this database, so a lease that lapsed before this one started has no live owner. */
  isAlone?: boolean;
}

export interface App {
  server: Server;
  /** The API key that was made; set at the first start on a database. */
  mintedKey: string | undefined;
  /**
   * Starts the periodic work. Deadlines and the parts of a tick wait for the first look at the node, and then until the
   * reconcile has ended or 5 s after the start are over: rows from a backup may have outdated deadlines.
   */
  startSweeps(): void;
  /** Resolves once the first reconcile has ended, but 5 s after the start at the latest: the node may not answer. */
  reconciled(): Promise<void>;
  meter: Meter;
  /** Checks all deadlines now instead of at the next interval. */
  checkDeadlines(): Promise<void>;
  /** Pauses every live session, and starts nothing from now on: before the host goes down. */
  pauseAll(stopped: AbortSignal): Promise<PausedAll>;
  close(): Promise<void>;
}

export async function createApp(settings: AppSettings, log: Log): Promise<App> {
  const {
    databaseUrl: url,
    nodeSocket,
    controlDir,
    objects: objectSettings = { dir: path.join(controlDir, "objects") },
    localObjectsDir,
    kekSource,
    tickMs = TICK_MS,
    isAlone,
    ...chosen
  } = settings;
  const db = openDatabase({ url, log });
  const { mintedKey, ...keys } = await prepareStore({ db, url, controlDir, kekSource }, log);
  const nodes = new NodeClient(nodeSocket);
  const watchedDb = openDatabase({ url, log, connections: 1 });
  const storeWatch = new StoreWatch({ db: watchedDb, isAlone });
  const objects = await openObjects(objectSettings);
  const localObjects = await openLocalObjects(objects, localObjectsDir);
  const stores = { objects, localObjects };
  const parts = assemble({ ...DEFAULTS, ...chosen, ...keys, ...stores, url, db, nodes, storeWatch, log });
  await untilStored(() => parts.jobs.open());
  addGauges(parts);
  const server = await createServer(parts);
  addRoutes(server, parts);
  const stopping = new AbortController();
  let reconciled = Promise.resolve();
  let sweeping: Promise<unknown> = Promise.resolve();
  let stopFollowing = async () => {};
  let stopLooking = () => {};
  return {
    server,
    meter: parts.meter,
    mintedKey,
    startSweeps: () => {
      stopFollowing = parts.previewPush.followMoves();
      stopLooking = parts.eventFeed.followMoves(logPublishFailure(log));
      const every = (ms: number, work: () => Promise<unknown>) => repeat(ms, stopping.signal, work);
      const hasLooked = repeatFirstLook(parts, tickMs, stopping.signal);
      reconciled = reconcileOnce(parts, hasLooked, stopping.signal);
      // Each part has its own interval, so that one which waits for the node does not delay the others.
      const onRows = () => [
        ...Object.entries(TICK_PARTS).map(([name, part]) => every(tickMs, () => runPart(parts, name, part))),
        every(Math.min(CLOCK_MS, tickMs), () => runPart(parts, "fire clocks", CLOCK_PART)),
        answerWakeRequests(parts, stopping.signal),
      ];
      const always = [
        ...Object.entries(HOURLY_PARTS).map(([name, part]) =>
          every(HOUR_MS, () => runPart(parts, name, part)),
        ),
        every(Math.min(WATCH_MS, tickMs), () => parts.storeWatch.look().catch(() => undefined)),
        every(FLUSH_MS, () => parts.eventFeed.poll().catch(logPublishFailure(log))),
        every(Math.min(ENDED_CREDENTIALS_MS, tickMs), async () => parts.openRequests.endExpired()),
        every(Math.min(ENDED_CREDENTIALS_MS, tickMs), () =>
          endRequestsOfEnded(parts).catch(logEndedFailure(log)),
        ),
        every(Math.min(REWRAP_MS, tickMs * 5), () => runPart(parts, "rewrap data keys", rewrapAll)),
        every(FLUSH_MS, () => parts.activity.flush()),
        every(FLUSH_MS, async () => {
          parts.denials.summarise();
          await parts.auditQueue.flush();
        }),
        every(Math.min(CHAIN_MS, tickMs), () => extendChains(parts).catch(logChainFailure(log))),
        every(KEEP_HEADS_MS, () => keepHeads(parts).catch(logChainFailure(log))),
      ];
      const onceReconciled = Promise.all([hasLooked, reconciled]).then(async () => {
        if (!stopping.signal.aborted) await parts.jobs.work(jobHandlers(parts)).catch(logJobFailure(log));
        await Promise.all(onRows());
      });
      sweeping = Promise.all([...always, onceReconciled]);
    },
    reconciled: () => reconciled,
    checkDeadlines: async () => void (await runPart(parts, "fire clocks", CLOCK_PART)),
    pauseAll: (stopped) => pauseAll(parts, stopped),
    close: async () => {
      stopping.abort();
      stopLooking();
      // Ends the event streams: the server's close waits for open answers.
      await parts.eventFeed.stop();
      await server.close();
      await parts.attachments.stop();
      await parts.operations.stop();
      await parts.provisioner.stop();
      await sweeping;
      await parts.jobs.stop();
      await stopFollowing();
      await parts.activity.flush();
      parts.denials.stop();
      await parts.auditQueue.flush();
      nodes.close();
      for (const store of new Set([objects, localObjects])) await store.close();
      await db.destroy();
      await watchedDb.destroy();
    },
  };
}

/** The OpenAPI document of the HTTP interface, as YAML. Nothing connects: describing routes uses no dependency. */
export async function describeApi(log: Log): Promise<string> {
  const db = openDatabase({ url: "postgresql://localhost/none", log });
  const parts = assemble({
    ...DEFAULTS,
    forkChildren: LIMITS.forkChildrenHard,
    pepper: Buffer.alloc(32),
    keptHeadsFile: "",
    previewKey: Buffer.alloc(32),
    operatorDigest: Buffer.alloc(32),
    keyring: Keyring.empty(),
    url: "postgresql://localhost/none",
    // Nothing is stored.
    objects: {} as ObjectStore,
    localObjects: {} as ObjectStore,
    db,
    nodes: new NodeClient("/nonexistent/node.sock"),
    storeWatch: new StoreWatch({ db }),
    log,
  });
  const server = await createServer(parts);
  addRoutes(server, parts);
  await server.ready();
  return server.swagger({ yaml: true });
}

/** Repeats the first look until it succeeds: it fails while the node does not answer. */
async function repeatFirstLook(parts: Parts, pauseMs: number, stopping: AbortSignal): Promise<void> {
  while (!stopping.aborted && !(await runPart(parts, "look at the node first", FIRST_PART)))
    await sleep(pauseMs, stopping);
}

/** Reconciles once, after the first look. Resolves after 5 s at the latest: the node may not answer. */
async function reconcileOnce(parts: Parts, hasLooked: Promise<void>, stopping: AbortSignal): Promise<void> {
  const over = new AbortController();
  const reconcile = () =>
    Promise.all(Object.entries(RECONCILE_PARTS).map(([name, part]) => runPart(parts, name, part)));
  // Before the first look, old rows would make newer machines and snapshots look like orphans.
  const done = hasLooked.then(() => (stopping.aborted ? [] : reconcile()));
  await Promise.race([done, sleep(RECONCILE_WAIT_MS, AbortSignal.any([stopping, over.signal]))]);
  over.abort();
}

type Parts = ReturnType<typeof assemble>;

interface Base extends AppOptions {
  url: string;
  objects: ObjectStore;
  localObjects: ObjectStore;
  db: Database;
  nodes: NodeClient;
  storeWatch: StoreWatch;
  pepper: Buffer;
  keptHeadsFile: string;
  previewKey: Buffer;
  operatorDigest: Buffer;
  keyring: Keyring;
  log: Log;
}

function assemble(given: Base) {
  const auditKey = auditKeyOf(given.pepper);
  const auditQueue = new EntryQueue(given);
  const linkKey = linkKeyOf(given.pepper);
  const base = { ...given, meter: new Meter(), auditKey, auditQueue, linkKey };
  const signals = new SessionSignals();
  const activity = new Activity(base);
  const moves = {
    ...base,
    signals,
    activity,
    startGate: new StartGate(),
    operations: new Operations({ ...base, signals }),
    networkReports: new NetworkReports({ ...base, activity, noteUses }),
    provisioner: new Provisioner({ ...base, signals }),
  };
  const snapshotOwners = [findSnapshotsInUse, keepOnlyCheckpoints, keepOnlyVersions, keepOnlyBaselines];
  return {
    ...moves,
    version: packageJson.version,
    authenticator: new Authenticator(base),
    wrongCredentials: new WrongCredentials(base),
    openRequests: new OpenRequests(),
    node: new NodeState(base.nodes),
    eventFeed: new EventFeed(moves),
    jobs: new JobQueue({ ...base, kinds: JOB_KINDS }),
    previewPush: new PreviewPush(moves),
    exposeQueue: new KeyedQueue(),
    commandLog: new CommandLog(base),
    denials: new Denials(base),
    outputQuotas: new OutputQuotas(),
    attachments: new Attachments(moves),
    upgrades: new Upgrades(base),
    reconciler: new Reconciler(moves),
    orphanSnapshots: new OrphanSnapshots({ ...base, snapshotOwners }),
    leasesKept: new Set<string>(),
    capPauses: new Map<string, number>(),
  };
}

function addRoutes(server: Server, parts: Parts): void {
  onAnswered(server, (answered) => auditAnswer(parts, answered));
  addServiceRoutes(server, parts);
  addKeyRoutes(server, parts);
  addProjectRoutes(server, parts);
  addKekRoutes(server, parts);
  addTokenRoutes(server, parts);
  addStartRoutes(server, parts);
  addSessionRoutes(server, parts);
  addMoveRoutes(server, parts);
  addRunRoutes(server, parts);
  addExecRoutes(server, parts);
  addFileRoutes(server, parts);
  addProcessRoutes(server, parts);
  addTerminalRoutes(server, parts);
  addAuditRoutes(server, parts);
  addCheckpointRoutes(server, parts);
  addTemplateRoutes(server, parts);
  addBuildRoutes(server, parts);
  addVolumeRoutes(server, parts);
  addRegistryRoutes(server, parts);
  addArtifactRoutes(server, parts);
  addArchiveRoutes(server, parts);
  addEgressRoutes(server, parts);
  addConnectionRoutes(server, parts);
  addPreviewRoutes(server, parts);
  addEventRoutes(server, parts);
}

function jobHandlers(deps: ArtifactDeps & BuildDeps): Record<JobKindName, JobHandler> {
  return {
    artifact_capture: (id, stopping) => captureArtifact(deps, id, stopping),
    template_builds: (input, stopping) => runBuilds(deps, input, stopping),
    artifact_removal: (input, stopping) => removeObjects(deps, input, stopping),
    archive_upload: (id, stopping) => uploadArchive(deps, id, stopping),
    archive_removal: (input, stopping) => removeArchived(deps, input, stopping),
  };
}

function logJobFailure(log: Log): (err: unknown) => void {
  return (err) => log.error({ err }, "background jobs do not run in this process");
}

/** Logs failures of the event feed. The sweeps warn about a database that is away; the feed looks too often for it. */
function logPublishFailure(log: Log): (err: unknown) => void {
  return (err) => {
    if (isStoreUnavailable(err)) log.debug({ err }, "events are published once the database answers");
    else log.warn({ err }, "events could not be published yet; will retry");
  };
}

function logEndedFailure(log: Log): (err: unknown) => void {
  return (err) => {
    if (isStoreUnavailable(err))
      log.debug({ err }, "revoked credentials are looked for once the database answers");
    else log.warn({ err }, "open requests of revoked credentials could not be ended yet; will retry");
  };
}

function logChainFailure(log: Log): (err: unknown) => void {
  return (err) => log.warn({ err }, "the chain of the audit log could not be extended yet; will retry");
}

async function repeat(ms: number, until: AbortSignal, work: () => Promise<unknown>): Promise<void> {
  while (!until.aborted) {
    await work();
    await sleep(ms, until);
  }
}
