/**
 * The channel between node and agent: one virtio-serial port, HTTP/2 (prior knowledge) on it.
 *
 * Before HTTP/2 every (re)connection resyncs, because after a load the port may contain half of an older frame:
 *
 *   host  → `HELLO <nonce>\n`   repeated with the same nonce every HELLO_INTERVAL_MS until answered
 *   agent → `READY <nonce>\n`   once per nonce; the agent drops the connection that it still served
 *   host  → `PRI * HTTP/2.0…`   the client preface; the agent skips repeated HELLO lines that come before it
 *
 * The host discards every byte before the READY line that carries its own nonce. The nonce is 32 lower-case hex
 * characters. While no host is connected a read of the port returns 0 at once: that is not an end, and the
 * agent waits without spinning. A side that reads bytes that fit neither rule closes the HTTP/2 connection and resyncs.
 */
export const AGENT_PORT_NAME = "vivarium.agent";
export const HELLO_INTERVAL_MS = 100;
/** Version of the protocol between node and agent. The node refuses an agent of another one. */
export const GENERATION = 2;

export const helloLine = (nonce: string) => `HELLO ${nonce}\n`;
export const readyLine = (nonce: string) => `READY ${nonce}\n`;

/** Limits on what the host accepts from an agent, whose bytes are hostile. */
export const GUEST_LIMITS = {
  resyncBytes: 8 * 1024 * 1024,
  jsonBodyBytes: 256 * 1024,
  framePayloadBytes: 64 * 1024,
  concurrentStreams: 256,
} as const;
