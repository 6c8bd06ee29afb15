/**
 * Lines of egress logs until control fetches them. Every line has a number; a lost line is a number without a line, so a
 * reader who comes again with the same cursor is told the same.
 */
import type { EgressEntry } from "@vivarium/contract/gateway";
import { randomId } from "@vivarium/kit/id";

const KEPT_LINES = 50_000;
const TOLD_AT_ONCE = 5_000;

export interface LogPage {
  entries: EgressEntry[];
  lost: number;
  cursor: string;
  active_sessions: string[];
}

interface Cursor {
  line: number;
  page: number;
}

export class EgressLog {
  /** A cursor of another life of this daemon says nothing about this log. */
  readonly #life = randomId(8);
  readonly #keptLines: number;
  #lines: { line: number; entry: EgressEntry }[] = [];
  #lastLine = 0;
  /** Pages told so far; `#active` has the page that a session is to be told in. */
  #page = 0;
  readonly #active = new Map<string, number>();

  constructor(keptLines = KEPT_LINES) {
    this.#keptLines = keptLines;
  }

  add(entries: EgressEntry[], lost = 0): void {
    for (const entry of entries) this.#lines.push({ line: ++this.#lastLine, entry });
    this.#lastLine += lost;
    // In large steps: moving a long array for every line is what a flood would make dear.
    if (this.#lines.length > this.#keptLines * 1.1) this.#dropTooMany();
  }

  markActive(sessions: string[]): void {
    for (const session of sessions) this.#active.set(session, this.#page + 1);
  }

  /** Lines after the cursor; what lies before it is dropped. Without a cursor, or with a strange one: all there is. */
  pageAfter(cursor: string | undefined): LogPage {
    const after = this.#parse(cursor);
    this.#lines = this.#lines.filter(({ line }) => line > after.line);
    this.#dropTooMany();
    for (const [session, page] of this.#active) if (page <= after.page) this.#active.delete(session);
    const told = this.#lines.slice(0, TOLD_AT_ONCE);
    const isAll = told.length === this.#lines.length;
    const last = isAll ? this.#lastLine : (told.at(-1)?.line ?? this.#lastLine);
    this.#page++;
    return {
      entries: told.map(({ entry }) => entry),
      lost: last - after.line - told.length,
      cursor: `${this.#life}.${last}.${this.#page}`,
      active_sessions: [...this.#active.keys()],
    };
  }

  /** The oldest lines of the machines with the most, so that one that is flooded costs nobody else a line. */
  #dropTooMany(): void {
    if (this.#lines.length <= this.#keptLines) return;
    const counts = new Map<string, number>();
    for (const { entry } of this.#lines)
      counts.set(entry.machine_id, (counts.get(entry.machine_id) ?? 0) + 1);
    const most = shareOf([...counts.values()], this.#keptLines);
    this.#lines = this.#lines.filter(({ entry: { machine_id: id } }) => {
      const left = counts.get(id) as number;
      if (left <= most) return true;
      counts.set(id, left - 1);
      return false;
    });
  }

  #parse(cursor: string | undefined): Cursor {
    const [life, line, page] = (cursor ?? "").split(".");
    if (life !== this.#life || !/^\d+$/.test(line ?? "") || !/^\d+$/.test(page ?? ""))
      return { line: 0, page: 0 };
    return { line: Math.min(Number(line), this.#lastLine), page: Number(page) };
  }
}

/** The largest share that all can have within the bound, where who has less takes less. */
function shareOf(counts: number[], bound: number): number {
  let left = bound;
  const rising = counts.toSorted((a, b) => a - b);
  for (const [index, count] of rising.entries()) {
    const share = Math.floor(left / (rising.length - index));
    if (count > share) return share;
    left -= count;
  }
  return bound;
}
