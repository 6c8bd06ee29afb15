import type { Socket } from "node:net";

const IDLE_MS = 60 * 60 * 1000;
/** One side has ended: the other is given this long between bytes. */
const HALF_OPEN_IDLE_MS = 5 * 60 * 1000;
const DEAD_PEER_MS = 60_000;

/**
 * Bytes both ways, no faster than they are taken, until both sides ended. An end is passed on, a reset too; silence
 * that is too long ends it.
 */
export function splice(guest: Socket, upstream: Socket): void {
  guest.setKeepAlive(true, DEAD_PEER_MS);
  guest.setNoDelay(true);
  guest.setTimeout(IDLE_MS, () => guest.resetAndDestroy());
  for (const [from, to] of [
    [guest, upstream],
    [upstream, guest],
  ] as const) {
    from.pipe(to);
    from.once("end", () => guest.setTimeout(HALF_OPEN_IDLE_MS));
    from.on("error", () => to.resetAndDestroy());
    from.once("close", () => {
      if (!from.readableEnded) to.destroy();
    });
  }
}
