/** SQL of attachments, the leases of clients of terminals and tunnels. They are measured by the database's now(). */
import { sql } from "kysely";
import type { Queries } from "../db/pool.ts";
import { leaseEnd } from "../db/time.ts";
import { DUE_NOW, dueWithin } from "../deadlines/columns.ts";

export type AttachmentKind = "pty" | "tunnel";

export interface AttachmentRow {
  id: string;
  sessionId: string;
  incarnation: number;
  kind: AttachmentKind;
}

/**
 * Adds a client, if the session still has the same machine and no operation stops it. Locks the session's row until
 * the insert, so that a concurrent pause because the last client has left sees this client. Clearing `due_claim`
 * keeps a concurrent check of the session's deadlines, which takes no lock, from overwriting `due_at`. Also deletes
 * expired leases of the same kind: only the last client to leave counts, and this one leaves later.
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
    select ${id}, held.id, ${incarnation}, ${kind}, ${leaseEnd(leaseMs)} from held
    returning id`.execute(db);
  return rows.length > 0;
}

/** Renews the leases of clients whose session still has the same live machine, and returns their ids. */
export async function renewAttachments(
  db: Queries,
  attachments: readonly AttachmentRow[],
  leaseMs: number,
): Promise<Set<string>> {
  const { rows } = await sql<{ id: string }>`
    insert into attachments (id, session_id, incarnation, kind, lease_until)
    select kept.id, sessions.id, kept.incarnation, kept.kind, ${leaseEnd(leaseMs)}
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

/** Ends a client's lease now. */
export async function endAttachment(db: Queries, { id, sessionId }: AttachmentRow): Promise<void> {
  await sql`
    with left_now as (update attachments set lease_until = now() where id = ${id})
    update sessions set ${DUE_NOW} where id = ${sessionId} and state = 'live'`.execute(db);
}

/** Deletes clients that left, once they cannot trigger the session's detach policy any more. */
export async function deleteOldAttachments(db: Queries): Promise<void> {
  await sql`
    delete from attachments where lease_until < now() - interval '1 hour' and not exists (
      select from sessions where sessions.id = attachments.session_id and sessions.state = 'live'
        and sessions.incarnation = attachments.incarnation and sessions.on_pty_detach <> 'keep_live'
    )`.execute(db);
}
