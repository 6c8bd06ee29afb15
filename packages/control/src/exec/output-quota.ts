/**
 * Limits the memory of buffered outputs by organisation, so that one cannot fill the memory that all share.
 *
 * A short output is free. Before a longer one is read, its answer reserves the bytes of the longest possible answer;
 * until they are free, its frames are not read, and back-pressure stops its command. Measured without a quota: 32
 * commands that fill both outputs hold 255 MiB.
 */
import type { ServerResponse } from "node:http";
import { onceClosed } from "../http/once-closed.ts";

/** Most bytes of one organisation's buffered answers together: two batches, or sixteen single commands. */
const ORG_BYTES = 128 * 1024 * 1024;
export const FREE_BYTES = 64 * 1024;
/** After this time an answer that its client does not read gives its reservation back. */
const UNREAD_MS = 30_000;

/** The reservation of one answer, shared by all its commands: so no two answers wait for each other. */
export interface OutputQuota {
  /** Resolves once the bytes are reserved; at once when they already are. */
  take(): Promise<void>;
  release(): void;
}

interface Org {
  freeBytes: number;
  queue: Reservation[];
}

class Reservation {
  readonly bytes: number;
  readonly granted = Promise.withResolvers<void>();
  state: "none" | "waiting" | "granted" | "returned" = "none";

  constructor(bytes: number) {
    this.bytes = bytes;
  }
}

export class OutputQuotas {
  readonly #orgBytes: number;
  readonly #byOrg = new Map<string, Org>();

  constructor({ orgBytes = ORG_BYTES }: { orgBytes?: number } = {}) {
    this.#orgBytes = orgBytes;
  }

  /** Makes the quota of an answer of at most `bytes`, which must not be more than an organisation's. */
  reserve(orgId: string, bytes: number): OutputQuota {
    const reservation = new Reservation(bytes);
    return {
      take: () => {
        if (reservation.state === "none") this.#queue(orgId, reservation);
        return reservation.granted.promise;
      },
      release: () => this.#release(orgId, reservation),
    };
  }

  #queue(orgId: string, reservation: Reservation): void {
    const org = this.#byOrg.get(orgId) ?? { freeBytes: this.#orgBytes, queue: [] };
    this.#byOrg.set(orgId, org);
    reservation.state = "waiting";
    org.queue.push(reservation);
    admit(org);
  }

  #release(orgId: string, reservation: Reservation): void {
    const { state } = reservation;
    reservation.state = "returned";
    // Resumes a command that still waits; it then finds that its answer is over.
    reservation.granted.resolve();
    const org = this.#byOrg.get(orgId);
    if (!org) return;
    if (state === "granted") org.freeBytes += reservation.bytes;
    org.queue = org.queue.filter((other) => other !== reservation);
    admit(org);
    if (org.freeBytes === this.#orgBytes) this.#byOrg.delete(orgId);
  }
}

/** Grants reservations in the order of arrival, so that single commands cannot delay a batch for ever. */
function admit(org: Org): void {
  for (let [first] = org.queue; first && first.bytes <= org.freeBytes; [first] = org.queue) {
    org.queue.shift();
    org.freeBytes -= first.bytes;
    first.state = "granted";
    first.granted.resolve();
  }
}

/** Gives the bytes back once the answer was sent, its client left, or no one reads it. */
export function returnOnceAnswered(reservation: OutputQuota, response: ServerResponse): void {
  const late = setTimeout(() => reservation.release(), UNREAD_MS).unref();
  onceClosed(response, () => {
    clearTimeout(late);
    reservation.release();
  });
}
