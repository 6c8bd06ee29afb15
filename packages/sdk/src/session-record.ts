/** The session record with what saved state adds to it (wire.md 4.4). */
import type { SessionRecord as PlainRecord } from "@vivarium/contract/api";

export type SessionRecord = PlainRecord & {
  paused_at?: string;
  wake_at?: string;
  snapshot_tier?: string;
  archive?: { status: string; uploaded_at?: string; detail?: string };
  restored_from?: string;
  /** Fork children: whose fork it is. */
  parent_session_id?: string;
  /** The checkpoint it was started from. */
  from_checkpoint?: string;
};

export interface SessionList {
  sessions: SessionRecord[];
  next_cursor?: string;
}
