import type { SessionRecord as RecordOfContract } from "@vivarium/contract/api";

/** A session as the service tells of it. */
export type SessionRecord = RecordOfContract & {
  /** The checkpoint that it was started from, where the service tells. */
  from_checkpoint?: string;
};

export interface SessionList {
  sessions: SessionRecord[];
  next_cursor?: string;
}
