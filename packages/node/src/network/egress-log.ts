/**
 * Buffers egress log lines until control fetches them. Every line has a number, and a lost line leaves a gap in the
 * numbers, so that a reader that repeats a cursor gets the same lines and the same count of lost ones.
 */
import type { EgressEntry } from "@vivarium/contract/gateway";
import type { NetworkReport } from "@vivarium/contract/node";
import { randomId } from "@vivarium/kit/id";

const KEPT_LINES = 50_000;
const PAGE_LINES = 5_000;

export class EgressLog {
  /** Part of every cursor: a cursor of an earlier process does not apply to this log. */
  readonly #life = randomId(8);
  readonly #keptLines: number;
  #lines: { line: number; entry: EgressEntry }[] = [];
  #lastLine = 0;
  /** Number of pages returned so far. */
  #page = 0;
  /** Sessions whose previews were used, each with the number of the page that reports it. */
  readonly #active = new Map<string, number>();

  constructor(keptLines = KEPT_LINES) {
    this.#keptLines = keptLines;
  }

  add(entries: EgressEntry[], lost = 0): void {
    for (const entry of entries) this.#lines.push({ line: ++this.#lastLine, entry });
    this.#lastLine += lost;
    // In large steps: under a flood, moving the long array once per line would be slow.
    if (this.#lines.length > this.#keptLines * 1.1) this.#dropTooMany();
  }

  markActive(sessions: string[]): void {
    for (const session of sessions) this.#active.set(session, this.#page + 1);
  }

  /** Lines after the cursor; lines up to it are dropped. Without a cursor, or with a foreign one: all lines. */
  pageAfter(cursor: string | undefined): Omit<NetworkReport, "counters"> {
    const after = this.#parse(cursor);
    this.#lines = this.#lines.filter(({ line }) => line > after.line);
    this.#dropTooMany();
    for (const [session, page] of this.#active) if (page <= after.page) this.#active.delete(session);
    const page = this.#lines.slice(0, PAGE_LINES);
    const isAll = page.length === this.#lines.length;
    const last = isAll ? this.#lastLine : (page.at(-1)?.line ?? this.#lastLine);
    this.#page++;
    return {
      entries: page.map(({ entry }) => entry),
      lost: last - after.line - page.length,
      cursor: `${this.#life}.${last}.${this.#page}`,
      active_sessions: [...this.#active.keys()],
    };
  }

  /**
   * Lines of sent uses are dropped last, because the audit log counts them. The others share the lines that uses leave, and
   * the machines with the most lines lose the oldest ones, so that one machine cannot crowd out the others. Of a machine,
   * what was let through is dropped before what was refused.
   */
  #dropTooMany(): void {
    if (this.#lines.length <= this.#keptLines) return;
    const surplus = surplusOf(
      this.#lines.map(({ entry }) => entry),
      this.#keptLines,
    );
    this.#lines = this.#lines.filter(({ entry }) => {
      const of = surplus.get(entry.machine_id) as Counts;
      const rank = rankOf(entry);
      if (of[rank] === 0) return true;
      of[rank] -= 1;
      return false;
    });
  }

  #parse(cursor = ""): { line: number; page: number } {
    const [, life, line, page] = /^([^.]+)\.(\d+)\.(\d+)$/.exec(cursor) ?? [];
    if (life !== this.#life) return { line: 0, page: 0 };
    return { line: Math.min(Number(line), this.#lastLine), page: Number(page) };
  }
}

type Counts = Record<"use" | "refused" | "other", number>;

/** A use is a request that was sent with a credential, or of which an older gateway does not say that it was not. */
function rankOf({ kind, verdict, is_sent }: EgressEntry): keyof Counts {
  if (verdict === "denied") return "refused";
  if (kind !== "connection") return "other";
  return is_sent === false ? "refused" : "use";
}

/** How many lines of each machine are too many. */
function surplusOf(entries: readonly EgressEntry[], bound: number): Map<string, Counts> {
  const counts = new Map<string, Counts>();
  for (const entry of entries) {
    const of = counts.get(entry.machine_id) ?? { use: 0, refused: 0, other: 0 };
    counts.set(entry.machine_id, of);
    of[rankOf(entry)] += 1;
  }
  const all = [...counts.values()];
  const uses = all.map(({ use }) => use);
  const mostUses = shareOf(uses, bound);
  const left = bound - uses.reduce((sum, use) => sum + Math.min(use, mostUses), 0);
  const mostOthers = shareOf(
    all.map(({ refused, other }) => refused + other),
    left,
  );
  for (const of of all) {
    const surplus = Math.max(0, of.refused + of.other - mostOthers);
    of.use = Math.max(0, of.use - mostUses);
    of.other = Math.min(of.other, surplus);
    of.refused = surplus - of.other;
  }
  return counts;
}

/** The largest cap on each count that keeps the sum of the counts within the bound. */
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
