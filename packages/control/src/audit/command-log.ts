/**
 * Audit entries of commands, written in batches after the answers, so that a command waits for no write. A process that
 * dies loses its last entries, and leaves those of its running commands pending.
 */
import { type CommandMeta, ID_PREFIXES } from "@vivarium/contract/api";
import { randomId } from "@vivarium/kit/id";
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { refusedData } from "../db/postgres-errors.ts";
import type { SessionRow } from "../sessions/store.ts";
import type { Caller } from "./caller.ts";
import { captureCommand } from "./capture.ts";
import { type Completion, completeEntries, insertEntries, type NewAuditRow } from "./store.ts";

type CommandEnd = Pick<CommandMeta, "exit_code" | "duration_ms" | "timed_out">;

/** The audit entry of a started command. Only the first call of `ended` or `lost` counts. */
export interface CommandEntry {
  ended(end: CommandEnd): void;
  /** The end of the command is unknown. */
  lost(): void;
}

interface Started {
  session: SessionRow;
  by: Caller;
  kind: CommandMeta["kind"];
  argv: readonly string[];
  /** Values that the entry masks. */
  secrets: readonly string[];
}

const MOST_WAITING = 20_000;
const MOST_AT_ONCE = 500;

export class CommandLog {
  readonly #deps: { db: Database; pepper: Buffer; log: Log };
  /** Entries that are not written yet. An entry whose command ends before the write is written complete. */
  #entries = new Map<string, NewAuditRow>();
  #completions: Completion[] = [];
  #dropped = 0;
  #flushing: Promise<void> | undefined;

  constructor(deps: { db: Database; pepper: Buffer; log: Log }) {
    this.#deps = deps;
  }

  started(command: Started): CommandEntry {
    const row = this.#newRow(command);
    if (this.#entries.size >= MOST_WAITING) this.#dropped += 1;
    else this.#entries.set(row.id, row);
    let isOver = false;
    const complete = (outcome: "ok" | "error", end: CommandEnd) => {
      if (!isOver) this.#complete({ id: row.id, outcome, meta: end });
      isOver = true;
    };
    return { ended: (end) => complete("ok", end), lost: () => complete("error", {}) };
  }

  /** Writes the waiting entries. After a failure of the database they keep waiting. */
  async flush(): Promise<void> {
    this.#flushing ??= this.#write().finally(() => {
      this.#flushing = undefined;
    });
    await this.#flushing;
  }

  #newRow({ session, by, kind, argv, secrets }: Started): NewAuditRow & { id: string } {
    const context = { pepper: this.#deps.pepper, orgId: session.org_id, secrets };
    return {
      id: ID_PREFIXES.audit + randomId(),
      org_id: session.org_id,
      session_id: session.id,
      at: new Date(),
      actor_kind: by.actor.kind,
      actor_id: by.actor.id,
      action: "session.exec",
      target: session.id,
      outcome: "pending",
      code: null,
      request_id: by.requestId,
      ip: by.ip,
      meta: JSON.stringify({ kind, ...captureCommand(session.command_capture, argv, context) }),
    };
  }

  #complete(completion: Completion): void {
    const waiting = this.#entries.get(completion.id);
    if (waiting) {
      waiting.outcome = completion.outcome;
      waiting.meta = JSON.stringify({ ...JSON.parse(waiting.meta), ...completion.meta });
    } else if (this.#completions.length >= MOST_WAITING) this.#dropped += 1;
    else this.#completions.push(completion);
  }

  async #write(): Promise<void> {
    const { db, log } = this.#deps;
    try {
      await this.#writeEntries(db);
      await this.#writeCompletions(db);
      if (this.#dropped > 0) log.error({ dropped: this.#dropped }, "entries of the audit log were lost");
      this.#dropped = 0;
    } catch (err) {
      log.warn({ err }, "entries of the audit log could not be written yet");
    }
  }

  async #writeEntries(db: Database): Promise<void> {
    while (this.#entries.size > 0) {
      const batch = [...this.#entries.values()].slice(0, MOST_AT_ONCE);
      // If the command ends from here on, its end is written by an update.
      for (const { id } of batch) this.#entries.delete(id);
      await this.#writeRows(batch, (rows) => insertEntries(db, rows)).catch((error: unknown) => {
        this.#requeue(batch);
        throw error;
      });
    }
  }

  async #writeCompletions(db: Database): Promise<void> {
    while (this.#completions.length > 0) {
      const batch = this.#completions.slice(0, MOST_AT_ONCE);
      await this.#writeRows(batch, (rows) => completeEntries(db, rows));
      this.#completions.splice(0, batch.length);
    }
  }

  /**
   * Writes rows in their order. If the database refuses their data, writes each half by itself, so that one bad row
   * does not block the others. Any other failure ends the writing.
   */
  async #writeRows<Row extends { id: string }>(
    rows: readonly Row[],
    write: (rows: readonly Row[]) => Promise<void>,
  ): Promise<void> {
    try {
      await write(rows);
    } catch (error) {
      const sqlState = refusedData(error);
      if (sqlState === undefined) throw error;
      if (rows.length === 1) {
        // The database's message is left out, because it repeats the command.
        const facts = { audit_id: rows[0]?.id, sql_state: sqlState };
        this.#deps.log.warn(facts, "the database refused the data of an audit entry: it is left out");
        return;
      }
      const middle = Math.ceil(rows.length / 2);
      await this.#writeRows(rows.slice(0, middle), write);
      await this.#writeRows(rows.slice(middle), write);
    }
  }

  #requeue(batch: readonly NewAuditRow[]): void {
    this.#entries = new Map([...batch.map((row) => [row.id, row] as const), ...this.#entries]);
  }
}
