/** `client.audit`: who changed what, and whether the log of it is whole. */
import type {
  AuditEntry,
  AuditExportLine,
  AuditFinding,
  AuditList,
  AuditVerification,
} from "@vivarium/contract/api";
import { VivariumError } from "./errors.ts";
import { paginate } from "./paginator.ts";
import { readLines } from "./read-lines.ts";
import { type CallOptions, getJson, send, type Transport } from "./transport.ts";

const PATH = "/v1/audit";

/** Filter of entries; without a filter, all entries of the organisation. */
export interface AuditFilter {
  /** Only entries of this instant or later. */
  since?: Date;
  /** Only entries before this instant. */
  until?: Date;
  /** Id of a key, hash of a token, `system` or `anonymous`. */
  actor?: string;
  /** An action such as `key.create`. */
  action?: string;
  /** Id or name of what was changed. */
  target?: string;
  sessionId?: string;
}

/** The findings of a verification, and how far the chain reaches. */
export interface AuditVerdict
  extends Pick<AuditVerification, "checked" | "waiting" | "before_chain" | "anchor" | "head"> {
  /** Whether nothing was found. */
  ok: boolean;
  findings: AuditFinding[];
  /** Findings that the service counted and did not list. */
  more_findings: number;
}

export interface VerifyOptions extends CallOptions {
  /** A head of an earlier verification: the chain must still have it. Keep one where the service cannot change it. */
  known?: { seq: number; hash: string };
  /** Called after each step, with the links and entries that were checked so far, and about how many there are. */
  onProgress?: (progress: { checked: number; total: number }) => void;
}

/** The audit log of the organisation. Needs a key with the role `full` for all of it. Reached as `client.audit`. */
export class Audit {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Entries of the last 90 days, newest first, fetched page by page.
   *
   * @example
   * for await (const { at, actor, action, target } of client.audit.list({ action: "key.create" }))
   *   console.log(at, actor.id, action, target);
   */
  list(
    {
      since,
      until,
      sessionId: session_id,
      pageSize: limit,
      ...filter
    }: AuditFilter & { pageSize?: number } = {},
    options: CallOptions = {},
  ): AsyncGenerator<AuditEntry, void, void> {
    const times = { since: since?.toISOString(), until: until?.toISOString() };
    return paginate("entries", (cursor) =>
      getJson<AuditList>(this.#transport, PATH, options, { ...filter, ...times, session_id, limit, cursor }),
    );
  }

  /**
   * Checks the whole log against its chain, step by step: entries that were changed, removed or put in are findings.
   *
   * @example
   * const { ok, findings, head } = await client.audit.verify();
   */
  async verify({ known, onProgress, ...options }: VerifyOptions = {}): Promise<AuditVerdict> {
    const asked = known && `${known.seq}.${known.hash}`;
    const all = { findings: [] as AuditFinding[], more_findings: 0, checked: 0, waiting: 0, before_chain: 0 };
    let cursor: string | undefined;
    for (;;) {
      const query = { cursor, known: cursor === undefined ? asked : undefined };
      const step = await getJson<AuditVerification>(this.#transport, `${PATH}/verify`, options, query);
      const { anchor, head } = step;
      all.findings.push(...step.findings);
      all.more_findings += step.more_findings ?? 0;
      for (const name of ["checked", "waiting", "before_chain"] as const) all[name] += step[name];
      // As many entries as links, about.
      const total = 2 * ((head?.seq ?? 0) - (anchor?.seq ?? 0));
      onProgress?.({ checked: all.checked, total: Math.max(total, all.checked) });
      cursor = step.next_cursor;
      if (cursor === undefined) return { ok: all.findings.length === 0, ...all, anchor, head };
    }
  }

  /**
   * The whole log with its chain, oldest first; with `after`, only the links after the one with this number. The last line
   * has the type `head`. Rejects when the answer ends before it.
   *
   * @example
   * for await (const line of client.audit.export()) await file.write(`${JSON.stringify(line)}\n`);
   */
  async *export(
    { after }: { after?: number } = {},
    { signal }: CallOptions = {},
  ): AsyncGenerator<AuditExportLine, void, void> {
    const call = {
      method: "GET",
      path: `${PATH}/export`,
      query: { after },
      repeatable: true,
      signal,
    } as const;
    const response = await send(this.#transport, call);
    for await (const text of readLines(response.body ?? [])) {
      const line = JSON.parse(text) as AuditExportLine;
      yield line;
      if (line.type === "head") return;
    }
    throw new VivariumError("connection_failed", "the export broke off before its last line", {
      retryable: true,
    });
  }
}
