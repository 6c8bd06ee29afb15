/** Opens a tunnel to a session's SSH server. */
import { Duplex } from "node:stream";
import { type CallOptions, sessionPath, type Transport } from "../transport.ts";
import { closedBy, NORMAL_CLOSE, openWebSocket, sendAll } from "./web-socket.ts";

/** Resolves to a stream of raw SSH bytes, with back-pressure both ways. */
export async function openTunnel(
  transport: Transport,
  sessionId: string,
  { signal }: CallOptions = {},
): Promise<Duplex> {
  const webSocket = await openWebSocket(transport, { path: sessionPath(sessionId, "/tunnel"), signal });
  const duplex = new Duplex({
    read: () => webSocket.resume(),
    write: (chunk: Buffer, _encoding, done) => void sendAll(webSocket, chunk).then(() => done(), done),
    final: (done) => {
      webSocket.close(NORMAL_CLOSE);
      done();
    },
    destroy: (error, done) => {
      webSocket.terminate();
      done(error);
    },
  });
  webSocket.on("message", (message: Buffer) => {
    if (!duplex.push(message)) webSocket.pause();
  });
  webSocket.once("close", (code, reason) => {
    if (signal?.aborted) duplex.destroy(signal.reason);
    else if (code === NORMAL_CLOSE || duplex.writableEnded) duplex.push(null);
    else duplex.destroy(closedBy(code, reason));
  });
  return duplex;
}
