/**
 * Entries that are written after their answers, in batches, so that nothing waits for them: of commands, of changes inside
 * a guest, and of denials. A process that dies loses those of its last moment.
 */
import type { Log } from "@vivarium/kit/log";
import type { Database } from "../db/pool.ts";
import { refusedData } from "../db/postgres-errors.ts";
import { type Completion, completeEntries, insertEntries, type NewAuditRow } from "./store.ts";

const MOST_WAITING = 20_000;
const MOST_AT_ONCE = 500;

export type QueuedRow = NewAuditRow & { id: string; seal: Buffer };

export class EntryQueue {
  readonly #deps: { db: Database; log: Log };
  /** Entries that are not written yet. An entry whose command ends before the write is written complete. */
  #entries = new Map<string, QueuedRow>();
  #completions: Completion[] = [];
  #dropped = 0;
  #flushing: Promise<void> | undefined;

  constructor(deps: { db: Database; log: Log }) {
    this.#deps = deps;
  }

  add(row: QueuedRow): void {
    if (this.#entries.size >= MOST_WAITING) this.#dropped += 1;
    else this.#entries.set(row.id, row);
  }

  /** Replaces a row that was added before, by the one with its outcome. */
  complete(row: QueuedRow & Completion): void {
    const { id, outcome, meta, seal } = row;
    if (this.#entries.has(id)) this.#entries.set(id, row);
    else if (this.#completions.length >= MOST_WAITING) this.#dropped += 1;
    else this.#completions.push({ id, outcome, meta, seal });
  }

  /** Writes the waiting entries. After a failure of the database they keep waiting. */
  async flush(): Promise<void> {
    this.#flushing ??= this.#write().finally(() => {
      this.#flushing = undefined;
    });
    await this.#flushing;
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

  #requeue(batch: readonly QueuedRow[]): void {
    this.#entries = new Map([...batch.map((row) => [row.id, row] as const), ...this.#entries]);
  }
}
