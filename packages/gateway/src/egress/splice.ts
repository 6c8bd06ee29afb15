/** Copies the bytes of a guest's connection to its server and back. */
import type { Socket } from "node:net";

/** The longest silence, and the longest once one side has ended. */
const IDLE_MS = 60 * 60 * 1000;
const HALF_OPEN_IDLE_MS = 5 * 60 * 1000;
const DEAD_PEER_MS = 60_000;

/** Runs, with back-pressure, until both sides have ended or were silent too long. Ends and resets are passed on. */
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
