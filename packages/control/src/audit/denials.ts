/**
 * Writes the entries of denials.
 *
 * Hazard: anybody can make the service deny something, as fast as it answers. So of each caller, and of all unknown callers
 * together, only so many denials of a minute have an entry each. The others are counted in one entry.
 */
import { type AuditMeta, auditActionOf, type ErrorCode, LIMITS, SUPPRESSED } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Database } from "../db/pool.ts";
import type { AuditDeps } from "./append.ts";
import { newRow } from "./entry.ts";
import type { EntryQueue } from "./entry-queue.ts";
import { findFirstOrg } from "./store.ts";

const MINUTE_MS = 60_000;
const MOST_CALLERS = 10_000;

export interface DenialDeps extends AuditDeps {
  db: Database;
  auditQueue: EntryQueue;
}

interface Count {
  by: Caller;
  written: number;
  suppressed: number;
}

/** The facts of a denial. */
interface Denied {
  by: Caller;
  code: ErrorCode;
  operation: string | undefined;
  target: string;
  sessionId?: string | null;
}

export class Denials {
  readonly #deps: DenialDeps;
  #counts = new Map<string, Count>();
  #minute = 0;
  #firstOrg: string | undefined;

  constructor(deps: DenialDeps) {
    this.#deps = deps;
  }

  /** Writes the denial, or counts it. */
  add({ by, code, operation, target, sessionId }: Denied): void {
    this.summarise();
    const count = this.#countOf(by);
    const isKnown = by.actor.kind !== "anonymous";
    const most = isKnown ? LIMITS.auditDenialsPerMinute : LIMITS.auditUnknownDenialsPerMinute;
    if (count.written >= most) {
      count.suppressed += 1;
      return;
    }
    count.written += 1;
    const meta: AuditMeta = operation === undefined ? {} : { operation };
    const entry = {
      by,
      action: auditActionOf(operation),
      target,
      sessionId,
      outcome: "denied",
      code,
      meta,
    } as const;
    this.#deps.auditQueue.add(newRow(this.#deps.auditKey, entry));
  }

  /** Once a minute is over, writes how many of its denials have no entry. */
  summarise(now = Date.now()): void {
    const minute = Math.floor(now / MINUTE_MS);
    if (minute === this.#minute) return;
    this.#minute = minute;
    this.#writeCounts();
  }

  /** For shutdown: writes the counts of the minute that is not over. */
  stop(): void {
    this.#writeCounts();
  }

  /** The organisation of callers without a credential: the one that the service was set up with. */
  async firstOrg(): Promise<string | undefined> {
    this.#firstOrg ??= await findFirstOrg(this.#deps.db).catch(() => undefined);
    return this.#firstOrg;
  }

  #countOf(by: Caller): Count {
    const name = by.actor.kind === "anonymous" ? "anonymous" : by.actor.id;
    const known = this.#counts.get(name);
    if (known) return known;
    if (this.#counts.size >= MOST_CALLERS) this.#writeCounts();
    const count = { by, written: 0, suppressed: 0 };
    this.#counts.set(name, count);
    return count;
  }

  #writeCounts(): void {
    for (const { by, suppressed } of this.#counts.values()) {
      if (suppressed === 0) continue;
      this.#deps.auditQueue.add(
        newRow(this.#deps.auditKey, {
          by: { ...by, requestId: "", ip: "" },
          action: SUPPRESSED,
          target: by.actor.id,
          outcome: "denied",
          meta: { suppressed },
        }),
      );
    }
    this.#counts.clear();
  }
}
