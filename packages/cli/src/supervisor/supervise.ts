/**
 * `viv up`: starts, watches and stops all processes of the service. They start in the order pool, database, gateway,
 * node, control, and stop in reverse: no request then meets a half-stopped service, and the node, which frees a slot
 * once the gateway has forgotten its machine, is served until the end. Machines are not children of the supervisor:
 * they keep running and are adopted at the next start.
 */
import { once } from "node:events";
import path from "node:path";
import { PAUSE_ALL_SIGNAL } from "@vivarium/contract/supervision";
import type { Account } from "@vivarium/kit/account";
import { CliError } from "../cli-error.ts";
import { bootstrapKeyPath, connectWithoutKey } from "../connect.ts";
import type { Context } from "../context.ts";
import { kvmRefusal, WAYS_OUT } from "../doctor/kvm.ts";
import { EXIT } from "../exit-codes.ts";
import { renderBanner } from "../print/banner.ts";
import { formatSeconds } from "../print/time.ts";
import { readUnprivilegedFile } from "../service/read-unprivileged-file.ts";
import { START_LIMIT_MS } from "../service/start-limit.ts";
import { waitForHealth } from "../service/wait-for-health.ts";
import { DEFAULT_INGRESS_LISTEN, lackOfPreviews, requireFreeAddress, urlOf } from "./address.ts";
import { readBuild } from "./build.ts";
import { checkSettings } from "./check-settings.ts";
import { childEnvOf, withoutSecrets } from "./child-env.ts";
import { COLLECTOR } from "./collector.ts";
import { isForHostShutdown, pauseSessions } from "./host-shutdown.ts";
import { HOPELESS_DEATHS, Keeper, type KeeperDeps } from "./keeper.ts";
import { hasImages, type Layout, layoutOf, makeBaseDirs, makeUserDirs } from "./layout.ts";
import { type LogPlace, type Logs, logsOf } from "./logs.ts";
import { PartsRecord } from "./parts-record.ts";
import { mountPool } from "./pool.ts";
import { launchPostgres } from "./postgres.ts";
import { databaseUrl, preparePostgres } from "./postgres-files.ts";
import { registerService } from "./registered-services.ts";
import { ENTRY_POINTS } from "./repository.ts";
import { startProcess } from "./running.ts";
import { checkReach, ensureServiceUser, GATEWAY_USER, SERVICE_USER } from "./service-user.ts";
import { requireNoUnfinishedRestore } from "./unfinished-restore.ts";
import { takeLockAfterCommands } from "./wait-for-lock.ts";

/** How control begins the line in which it says why it ends at its start. */
const CANNOT_START = "control cannot start: ";

/** Longest path of a unix socket in bytes, without the terminating zero (`sun_path`). */
const SOCKET_PATH_BYTES = 107;

const STOPPED = "stopped; machines of live sessions keep running and are taken over at the next start";
const PAUSED = "stopped; sessions that were paused wake by their next use after the start";

/** Runs the service in the foreground until it is stopped; returns the exit code. */
export async function supervise(
  { config, terminal }: Context,
  { logPlace = "files" }: { logPlace?: LogPlace } = {},
): Promise<number> {
  requireRoot();
  await checkSettings(config);
  const layout = layoutOf(config.dataDir, config.imagesDir);
  await makeBaseDirs(layout);
  const url = urlOf(config.listen);
  const lock = await takeLockAfterCommands({ ...layout, url, note: (line) => terminal.note(line) });
  if ("holder" in lock) {
    terminal.note(
      `viv: a service (pid ${lock.holder.pid}) already serves ${config.dataDir} at ${lock.holder.url}`,
    );
    return EXIT.alreadyRunning;
  }
  const startedAt = performance.now();
  const stopSignal = waitForStopSignal();
  const stopping = new AbortController();
  void stopSignal.then(() => stopping.abort());
  const logs = logsOf(logPlace, layout);
  const stopLogCap = logs.startCap();
  const leaveHost = await registerService(url);
  const keepers: Keeper[] = [];
  const parts = new PartsRecord(layout.partsFile);
  const supervision = { config, terminal, layout, logs, parts, keepers, stopping: stopping.signal };
  let lastLine = STOPPED;
  try {
    await requireNoUnfinishedRestore(layout);
    await startAll(supervision);
    if (!(await announce(supervision, startedAt))) return EXIT.failed;
    terminal.note(`stopping (${await stopSignal}) …`);
    if (await pauseIfHostGoesDown(supervision, await stopSignal)) lastLine = PAUSED;
    return EXIT.ok;
  } catch (error) {
    if (!stopping.signal.aborted) throw error;
    terminal.note(`stopping (${await stopSignal}) before all was started …`);
    if (await pauseIfHostGoesDown(supervision, await stopSignal)) lastLine = PAUSED;
    return EXIT.ok;
  } finally {
    const hasRun = keepers.length > 0;
    for (const keeper of keepers.reverse()) await keeper.stop();
    await leaveHost();
    await parts.remove();
    stopLogCap();
    await lock.release();
    if (hasRun) terminal.note(lastLine);
  }
}

/** Pauses the sessions if the host goes down. Returns whether it did. */
async function pauseIfHostGoesDown(
  { config, terminal, keepers }: Supervision,
  signal: string,
): Promise<boolean> {
  const control = keepers.find(({ name }) => name === "control");
  if (!control || !(await isForHostShutdown(signal))) return false;
  const client = connectWithoutKey({ ...config, url: urlOf(config.listen) });
  await pauseSessions({ control, client, terminal }, waitForStopSignal());
  return true;
}

interface Supervision extends Context {
  layout: Layout;
  logs: Logs;
  parts: PartsRecord;
  /** Processes in the order of their start; appended one by one, so that a failed start stops those that run. */
  keepers: Keeper[];
  /** Aborted when the whole service must stop. */
  stopping: AbortSignal;
}

async function startAll(supervision: Supervision): Promise<void> {
  const { config, terminal, layout, stopping } = supervision;
  const { listen } = config;
  await requireFreeAddress(listen);
  const step = async <T>(name: string, work: () => Promise<T>): Promise<T> => {
    const from = performance.now();
    const result = await work();
    stopping.throwIfAborted();
    terminal.note(`  ${name.padEnd(14)} ${formatSeconds(performance.now() - from)}`);
    return result;
  };
  const lack = await lackOfPreviews(config.childEnv.VIV_INGRESS_LISTEN || DEFAULT_INGRESS_LISTEN);
  if (lack !== undefined) terminal.note(`viv: ${lack}`);
  await notePart(supervision, "supervisor", process.pid);
  await step("storage pool", () => mountPool(layout));
  requireImages(layout);
  requireKvmRights(config);
  const user = await ensureServiceUser(config.childEnv.VIV_CONTROL_USER || SERVICE_USER);
  const gatewayUser = config.childEnv.VIV_GATEWAY_USER ?? (await ensureServiceUser(GATEWAY_USER)).name;
  await makeUserDirs(layout, user);
  await checkReach(user, layout.controlDir);
  const url = config.databaseUrl ?? (await step("database", () => startPostgres(supervision, user)));
  const env = childEnvOf(config, { layout, listen, controlUser: user.name, gatewayUser });
  await keepService(supervision, "gateway", withoutSecrets(env));
  await keepService(supervision, "node", withoutSecrets(env));
  await keepService(supervision, "control", { ...env, DATABASE_URL: url });
}

async function startPostgres(supervision: Supervision, user: Account): Promise<string> {
  const { layout, logs } = supervision;
  requireSocketPath(layout);
  const files = await preparePostgres(layout, user);
  const place = { layout, files, logFile: logs.fileOf("postgres") };
  await keep(supervision, "postgres", {
    launch: async (signal) => {
      const running = await launchPostgres(place, user, signal);
      await notePart(supervision, "postgres", running.pid, path.basename(files.programs));
      return running;
    },
    report: (message) => supervision.terminal.note(`viv: ${message}`),
  });
  return databaseUrl(layout, user);
}

/** Starts one of the three services. Only control gets the database's address and the keys: node and gateway know no tenants. */
function keepService(
  supervision: Supervision,
  name: "node" | "gateway" | "control",
  env: Record<string, string>,
): Promise<void> {
  const { logs } = supervision;
  const argv = [process.execPath, ...COLLECTOR, ENTRY_POINTS[name]];
  return keep(supervision, name, {
    launch: async () => {
      const running = startProcess(argv, { env, logFile: logs.fileOf(name), cwd: "/" });
      void notePart(supervision, name, running.pid);
      return running;
    },
    report: (message) => supervision.terminal.note(`viv: ${message}; see ${logs.placeOf(name)}`),
  });
}

/** Notes a process that was started. Without the record only `viv version` knows less. */
async function notePart({ parts }: Supervision, name: string, pid: number, version?: string): Promise<void> {
  const since = new Date().toISOString();
  const of = async () => version ?? (await readBuild()).version;
  await of()
    .then((known) => parts.note(name, { pid, version: known, since }))
    .catch(() => {});
}

async function keep({ keepers, stopping }: Supervision, name: string, deps: KeeperDeps): Promise<void> {
  const keeper = new Keeper(name, deps);
  keepers.push(keeper);
  await keeper.start(stopping);
}

/** Waits until the service answers, then prints the banner; false when it does not answer. */
async function announce(
  { config, terminal, layout, logs, keepers, stopping }: Supervision,
  startedAt: number,
): Promise<boolean> {
  const url = urlOf(config.listen);
  const health = await waitForHealth(connectWithoutKey({ ...config, url }), {
    limitMs: START_LIMIT_MS,
    signal: stopping,
    isHopeless: () => keepers.some((keeper) => keeper.deaths >= HOPELESS_DEATHS),
  });
  if (!health) {
    if (stopping.aborted) return true;
    const reason = await logs.lastWords("control", CANNOT_START);
    const why = reason === undefined ? "" : `: ${reason}`;
    terminal.note(`viv: the service does not answer at ${url}${why}; more is in ${logs.placeOf()}`);
    return false;
  }
  const keyFile = bootstrapKeyPath(layout.dataDir);
  const after = formatSeconds(performance.now() - startedAt);
  const newKey = terminal.isInteractive
    ? await readIfNewer(keyFile, performance.now() - startedAt)
    : undefined;
  const kekFile = path.join(layout.controlDir, "kek");
  const newKek = (await readIfNewer(kekFile, performance.now() - startedAt)) && kekFile;
  terminal.note(renderBanner({ url, keyFile, newKey, newKek, logs: logs.placeOf(), health, after }));
  return true;
}

/** The text of a key file, if this start has made it; the caller shows it only on a terminal, never in a log. */
async function readIfNewer(file: string, ageMs: number): Promise<string | undefined> {
  const found = await readUnprivilegedFile(file).catch(() => undefined);
  return found && found.changedAtMs >= Date.now() - ageMs ? found.text.trim() : undefined;
}

function waitForStopSignal(): Promise<string> {
  const signals = ["SIGINT", "SIGTERM", "SIGHUP", PAUSE_ALL_SIGNAL] as const;
  return Promise.race(signals.map((signal) => once(process, signal).then(() => signal)));
}

function requireRoot(): void {
  if (process.getuid?.() === 0) return;
  throw new CliError(
    "viv up needs root: it makes namespaces, mounts the storage pool and drops to other users",
    {
      hint: "Run it as: sudo viv up",
    },
  );
}

/** Fails if the socket path is too long for the kernel, or has a comma, at which the database splits its list. */
function requireSocketPath({ postgresSocketDir, dataDir }: Layout): void {
  const left = SOCKET_PATH_BYTES - Buffer.byteLength(`${postgresSocketDir}/.s.PGSQL.5432`);
  if (left >= 0 && !postgresSocketDir.includes(",")) return;
  const why = left < 0 ? `is ${-left} bytes too long` : "has a comma";
  throw new CliError(`the database cannot listen below ${dataDir}: the path ${why}`, {
    hint: "Choose another --data-dir, or set DATABASE_URL to a PostgreSQL of your own.",
  });
}

/** A host whose KVM merely lacks rights is not emulated unasked; the node refuses to start for the same reason. */
function requireKvmRights({ childEnv }: Context["config"]): void {
  const refused = kvmRefusal(childEnv.VIV_ACCEL);
  if (refused !== undefined) throw new CliError(refused, { hint: WAYS_OUT });
}

function requireImages(layout: Layout): void {
  if (hasImages(layout)) return;
  throw new CliError(`no guest kernel and base template in ${layout.imagesDir}`, {
    hint: `Run ./setup --data-dir ${layout.dataDir}, or name another place with --images-dir.`,
  });
}
