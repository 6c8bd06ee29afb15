/** Collects the uses of Connections until they are sent to the node. Bounded per session, and in all. */
import type { ConnectionEntry } from "@vivarium/contract/gateway";

const MAX_OF_SESSION = 1_000;
const MAX_HELD = 40_000;
/** Entries in one report. */
const MAX_TAKEN = 1_000;

/** A request, with the machine that made it. */
export type LoggedRequest = ConnectionEntry & { machine_id: string };

export class ConnectionLog {
  #entries: LoggedRequest[] = [];
  #ofSession = new Map<string, number>();
  #lost = 0;

  /** Answers that carried a credential are kept beyond the limit of their session: they are few. */
  add(entry: LoggedRequest): void {
    const known = this.#ofSession.get(entry.session_id) ?? 0;
    const isTooMany = known >= MAX_OF_SESSION && entry.event !== "reflected";
    if (isTooMany || this.#entries.length >= MAX_HELD) {
      this.#lost += 1;
      return;
    }
    this.#ofSession.set(entry.session_id, known + 1);
    this.#entries.push(entry);
  }

  /** Removes and returns the oldest entries; undefined when there is nothing to report. */
  take(): { entries: LoggedRequest[]; lost: number } | undefined {
    if (this.#entries.length === 0 && this.#lost === 0) return undefined;
    const entries = this.#entries.splice(0, MAX_TAKEN);
    for (const { session_id } of entries) {
      const left = (this.#ofSession.get(session_id) ?? 1) - 1;
      if (left === 0) this.#ofSession.delete(session_id);
      else this.#ofSession.set(session_id, left);
    }
    const lost = this.#lost;
    this.#lost = 0;
    return { entries, lost };
  }
}
