import { LIMITS } from "@vivarium/contract/api";
import type { WebSocket } from "ws";

/**
 * Pings the peer, and drops it once it has been silent for too long (wire.md 8.1): a connection whose other end is gone
 * looks like one whose other end has nothing to say.
 */
export function keepAlive(
  webSocket: WebSocket,
  {
    pingMs = LIMITS.webSocketPingMs,
    silenceMs = LIMITS.webSocketSilenceMs,
  }: { pingMs?: number; silenceMs?: number } = {},
): void {
  let heardAt = performance.now();
  const hear = () => {
    heardAt = performance.now();
  };
  for (const event of ["message", "ping", "pong"]) webSocket.on(event, hear);
  const pings = setInterval(() => {
    if (webSocket.readyState === webSocket.OPEN) webSocket.ping();
  }, pingMs);
  const looks = setInterval(() => {
    // While we do not read, we do not hear either.
    if (webSocket.isPaused) hear();
    if (performance.now() - heardAt >= silenceMs) webSocket.terminate();
  }, silenceMs / 15);
  webSocket.once("close", () => {
    clearInterval(pings);
    clearInterval(looks);
  });
}
