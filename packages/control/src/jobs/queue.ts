/**
 * Background jobs on the service's own database. A job is a hint that a row has work: its handler reads the row and
 * continues from it, so that a job may be lost, repeated, or left over from another database without harm. Jobs of one
 * row never run twice at once, unless the process of the first attempt is cut off and does not notice.
 */
import type { Log } from "@vivarium/kit/log";
import { fromKysely, PgBoss } from "pg-boss";
import type { Database } from "../db/pool.ts";
import type { JobKind } from "./kinds.ts";
import { countByKindAndState, countWaiting, JOBS_SCHEMA } from "./store.ts";

/** A process that does not report for this long is taken for dead. The least that the library allows. */
const HEARTBEAT_S = 10;
/** Interval at which dead processes are looked for. */
const MONITOR_S = 5;
/** Interval at which each worker looks for jobs while it is not notified of new ones. */
const POLL_S = 1;
/** The same while it is: no notification says that the time for a retry has come. */
const NOTIFIED_POLL_S = 5;
const CONNECTIONS = 4;
/** How long running jobs may continue at a shutdown, before they are left for a retry. */
const DRAIN_MS = 5_000;
/** Jobs that ended are kept for this long. */
const KEEP_ENDED_S = 3_600;

/** Carries out the work of the row. `stopping` is aborted at a shutdown, and when the attempt has taken too long. */
export type JobHandler = (id: string, stopping: AbortSignal) => Promise<void>;
/** `present`: a job for this row waits or runs already. `full`: too many wait; a sweep adds it later. */
export type Added = "added" | "present" | "full";

interface QueueSettings<Kind extends string> {
  url: string;
  db: Database;
  log: Log;
  kinds: Record<Kind, JobKind>;
}

export class JobQueue<Kind extends string> {
  readonly #boss: PgBoss;
  readonly #db: Database;
  readonly #log: Log;
  readonly #kinds: Record<Kind, JobKind>;
  readonly #stopping = new AbortController();
  #isOpen = false;

  constructor({ url, db, log, kinds }: QueueSettings<Kind>) {
    this.#db = db;
    this.#log = log;
    this.#kinds = kinds;
    this.#boss = new PgBoss({
      connectionString: url,
      schema: JOBS_SCHEMA,
      application_name: "vivarium-jobs",
      max: CONNECTIONS,
      connectionTimeoutMillis: 3_000,
      useListenNotify: true,
      schedule: false,
      superviseIntervalSeconds: MONITOR_S,
      monitorIntervalSeconds: MONITOR_S,
    });
    this.#boss.on("error", (err) =>
      log.warn({ err }, "the job queue could not reach the database; will retry"),
    );
  }

  /** Makes the queue's tables and brings the kinds up to date. */
  async open(): Promise<void> {
    await this.#boss.start();
    this.#isOpen = true;
    for (const [name, kind] of Object.entries<JobKind>(this.#kinds)) {
      const settings = {
        retryLimit: kind.retries,
        retryDelay: kind.backoffS,
        retryBackoff: true,
        expireInSeconds: kind.expireS,
        heartbeatSeconds: HEARTBEAT_S,
        deleteAfterSeconds: KEEP_ENDED_S,
        notify: true,
      };
      await this.#boss.createQueue(name, { ...settings, policy: "exclusive" });
      await this.#boss.updateQueue(name, settings);
    }
  }

  /** Adds a job for the row, unless there is one. Jobs are found by the row's id alone. */
  async add(kind: Kind, id: string): Promise<Added> {
    const waiting = await countWaiting(this.#db, kind);
    if (waiting >= this.#kinds[kind].waiting) return "full";
    const added = await this.#boss.send(kind, { id }, { singletonKey: id, db: fromKysely(this.#db) });
    return added === null ? "present" : "added";
  }

  /** Runs jobs in this process from now on. */
  async work(handlers: Record<Kind, JobHandler>): Promise<void> {
    for (const [name, run] of Object.entries<JobHandler>(handlers)) {
      const { concurrency } = this.#kinds[name as Kind];
      const options = {
        localConcurrency: concurrency,
        pollingIntervalSeconds: POLL_S,
        notifyPollingIntervalSeconds: NOTIFIED_POLL_S,
        burstWhenBatchFull: true,
      };
      await this.#boss.work<{ id: string }>(name, options, async (jobs) => {
        for (const job of jobs) await this.#run(name, run, job);
      });
    }
  }

  async #run(
    kind: string,
    run: JobHandler,
    job: { data: { id: string }; signal: AbortSignal },
  ): Promise<void> {
    const { id } = job.data;
    try {
      await run(id, AbortSignal.any([job.signal, this.#stopping.signal]));
    } catch (err) {
      this.#log.warn({ err, kind, id }, "a job failed; it is retried if it has attempts left");
      throw err;
    }
  }

  /** Jobs by kind and state, without those that ended well. */
  counts(): Promise<{ kind: string; state: string; count: number }[]> {
    return countByKindAndState(this.#db);
  }

  /** Ends after the running jobs, but after five seconds at the latest: they are retried, here or elsewhere. */
  async stop(): Promise<void> {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#stopping.abort();
    await this.#boss.stop({ graceful: true, timeout: DRAIN_MS });
  }
}
