/** SQL of attachments: which clients of terminals and tunnels a session has, as leases on now(). */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { DUE_NOW, dueWithin } from "../deadlines/columns.ts";

export type AttachmentKind = "pty" | "tunnel";

export interface AttachmentRow {
  id: string;
  sessionId: string;
  incarnation: number;
  kind: AttachmentKind;
}

/**
 * Writes a client down, if the session still stands where the client was let in and no operation stops its machine.
 * The session's row is held meanwhile: who decides under that lock that the last client has left sees this one, and who
 * looks at the session's clocks at the same time, without it, is not to say when to look next. Clients that left before
 * are forgotten; this one is later than they are.
 */
export async function insertAttachment(
  db: Queries,
  { id, sessionId, incarnation, kind }: AttachmentRow,
  leaseMs: number,
): Promise<boolean> {
  const { rows } = await sql<{ id: string }>`
    with held as (
      update sessions set ${dueWithin(leaseMs)}
      where id = ${sessionId} and state = 'live' and incarnation = ${incarnation}
        and (op is null or op not in ('pause', 'restore', 'settle'))
      returning id
    ), forgotten as (
      delete from attachments where session_id in (select id from held) and kind = ${kind} and lease_until < now()
    )
    insert into attachments (id, session_id, incarnation, kind, lease_until)
    select ${id}, held.id, ${incarnation}, ${kind}, ${after(leaseMs)} from held
    returning id`.execute(db);
  return rows.length > 0;
}

/** Renews leases. Tells which of them still belong to a live machine; the others are past. */
export async function renewAttachments(
  db: Queries,
  attachments: readonly AttachmentRow[],
  leaseMs: number,
): Promise<Set<string>> {
  const { rows } = await sql<{ id: string }>`
    insert into attachments (id, session_id, incarnation, kind, lease_until)
    select kept.id, sessions.id, kept.incarnation, kept.kind, ${after(leaseMs)}
    from unnest(
      ${attachments.map(({ id }) => id)}::text[],
      ${attachments.map(({ sessionId }) => sessionId)}::text[],
      ${attachments.map(({ incarnation }) => incarnation)}::integer[],
      ${attachments.map(({ kind }) => kind)}::text[]
    ) as kept (id, session_id, incarnation, kind)
    join sessions on sessions.id = kept.session_id
      and sessions.incarnation = kept.incarnation and sessions.state = 'live'
    on conflict (id) do update set lease_until = excluded.lease_until
    returning id`.execute(db);
  return new Set(rows.map(({ id }) => id));
}

/** The client has left, now. */
export async function endAttachment(db: Queries, { id, sessionId }: AttachmentRow): Promise<void> {
  await sql`
    with left_now as (update attachments set lease_until = now() where id = ${id})
    update sessions set ${DUE_NOW} where id = ${sessionId} and state = 'live'`.execute(db);
}

/** Clients that left, once nothing follows from it any more. */
export async function deletePastAttachments(db: Queries): Promise<void> {
  await sql`
    delete from attachments where lease_until < now() - interval '1 hour' and not exists (
      select from sessions where sessions.id = attachments.session_id and sessions.state = 'live'
        and sessions.incarnation = attachments.incarnation and sessions.on_pty_detach <> 'keep_live'
    )`.execute(db);
}

function after(ms: number) {
  return sql<Date>`now() + make_interval(secs => ${ms / 1000})`;
}
