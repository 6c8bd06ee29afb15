import { LIMITS } from "@vivarium/contract/api";
import type { WebSocket } from "ws";

/**
 * Pings the peer, and cuts the connection once the peer has been silent for too long: a peer that is gone looks like
 * one that has nothing to send.
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
  const checks = setInterval(() => {
    // A paused socket reads no pongs, so its silence does not count.
    if (webSocket.isPaused) hear();
    if (performance.now() - heardAt >= silenceMs) webSocket.terminate();
  }, silenceMs / 15);
  webSocket.once("close", () => {
    clearInterval(pings);
    clearInterval(checks);
  });
}
