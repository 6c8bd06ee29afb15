/**
 * What buffered outputs take of this process's memory, by organisation. A short output is free. A longer one takes room
 * for the longest first; while there is none its frames are not read on, which holds its command back.
 */
import type { ServerResponse } from "node:http";

/** Of all buffered answers of one organisation together: two batches, or sixteen single commands. */
const ORG_BYTES = 128 * 1024 * 1024;
export const FREE_BYTES = 64 * 1024;
/** An answer that is not read in this time keeps others waiting no longer. */
const UNREAD_MS = 30_000;

/** Of one answer, however many commands it tells of: they take it together, so no two answers wait for each other. */
export interface OutputRoom {
  /** Resolves once the room is the answer's; at once every other time. */
  take(): Promise<void>;
  leave(): void;
}

interface Org {
  freeBytes: number;
  queue: Place[];
}

class Place {
  readonly bytes: number;
  readonly entered = Promise.withResolvers<void>();
  state: "outside" | "waiting" | "inside" | "left" = "outside";

  constructor(bytes: number) {
    this.bytes = bytes;
  }
}

export class OutputRooms {
  readonly #orgBytes: number;
  readonly #byOrg = new Map<string, Org>();

  constructor({ orgBytes = ORG_BYTES }: { orgBytes?: number } = {}) {
    this.#orgBytes = orgBytes;
  }

  /** For an answer of at most so many bytes, which must not be more than an organisation has. */
  room(orgId: string, bytes: number): OutputRoom {
    const place = new Place(bytes);
    return {
      take: () => {
        if (place.state === "outside") this.#queue(orgId, place);
        return place.entered.promise;
      },
      leave: () => this.#leave(orgId, place),
    };
  }

  #queue(orgId: string, place: Place): void {
    const org = this.#byOrg.get(orgId) ?? { freeBytes: this.#orgBytes, queue: [] };
    this.#byOrg.set(orgId, org);
    place.state = "waiting";
    org.queue.push(place);
    admit(org);
  }

  #leave(orgId: string, place: Place): void {
    const { state } = place;
    place.state = "left";
    // Whoever still reads is about to be told that its answer is over.
    place.entered.resolve();
    const org = this.#byOrg.get(orgId);
    if (!org) return;
    if (state === "inside") org.freeBytes += place.bytes;
    org.queue = org.queue.filter((other) => other !== place);
    admit(org);
    if (org.freeBytes === this.#orgBytes) this.#byOrg.delete(orgId);
  }
}

/** In the order in which they came, so that single commands do not keep a batch out. */
function admit(org: Org): void {
  for (let [first] = org.queue; first && first.bytes <= org.freeBytes; [first] = org.queue) {
    org.queue.shift();
    org.freeBytes -= first.bytes;
    first.state = "inside";
    first.entered.resolve();
  }
}

/** The room is given back once the answer is out, or its client gone, or nobody reads it. */
export function leaveOnceAnswered(room: OutputRoom, response: ServerResponse): void {
  if (response.closed || response.destroyed) {
    room.leave();
    return;
  }
  const late = setTimeout(() => room.leave(), UNREAD_MS).unref();
  response.once("close", () => {
    clearTimeout(late);
    room.leave();
  });
}
