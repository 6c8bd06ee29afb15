/** Passes bytes between a client's WebSocket and its session's machine, each only as fast as the other takes them. */
import { WS_CLOSE } from "@vivarium/contract/api";
import type { WebSocket } from "ws";
import type { Activity } from "../deadlines/activity.ts";
import { type BrokenOffDeps, type BrokenOffWords, brokenOff } from "../guest/broken-off.ts";
import { oneLine } from "../http/render-error.ts";
import type { Attached } from "./attach.ts";
import type { Protocol } from "./messages.ts";

export type RelayDeps = BrokenOffDeps & { activity: Activity };

const ENDED = new Error("the stream ended");
/** What may wait for a slow client before the machine has to. */
const WAITING_BYTES = 256 * 1024;

/** Ends when either side has, with the WebSocket closing or closed. */
export async function relay(
  deps: RelayDeps,
  { session, stream, moved }: Attached,
  webSocket: WebSocket,
  protocol: Protocol,
): Promise<void> {
  const { activity } = deps;
  const leaveMoved = () => {
    webSocket.close(WS_CLOSE.goingAway, "the session was paused or destroyed");
    stream.destroy();
  };
  webSocket.on("message", (message: Buffer, isBinary: boolean) => {
    if (webSocket.readyState !== webSocket.OPEN) return;
    if (!isBinary) return webSocket.close(WS_CLOSE.unsupportedData, "messages must be binary");
    activity.touch(session.id);
    for (const bytes of protocol.toGuest(message)) writeOrWait(webSocket, stream, bytes);
  });
  webSocket.once("close", () => stream.destroy());
  moved.addEventListener("abort", leaveMoved, { once: true });
  try {
    if (moved.aborted) leaveMoved();
    const code = await relayToClient(deps, { session, stream, moved }, webSocket, protocol);
    webSocket.close(code);
  } catch (cause) {
    if (webSocket.readyState === webSocket.OPEN) await explain(deps, session, webSocket, { protocol, cause });
  } finally {
    moved.removeEventListener("abort", leaveMoved);
    stream.destroy();
    // Else the peer's answer to our closing would not be read.
    webSocket.resume();
  }
}

/** A machine that does not read holds the client back. */
function writeOrWait(webSocket: WebSocket, stream: Attached["stream"], bytes: Buffer): void {
  if (stream.destroyed || stream.write(bytes) || webSocket.isPaused) return;
  webSocket.pause();
  stream.once("drain", () => webSocket.resume());
}

/** The code to close with, once the stream says that it is over. */
async function relayToClient(
  deps: RelayDeps,
  { session, stream }: Attached,
  webSocket: WebSocket,
  protocol: Protocol,
): Promise<number> {
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    deps.activity.touch(session.id);
    const { messages, closeCode } = protocol.toClient(chunk);
    for (const message of messages) await sendOrWait(webSocket, message);
    if (closeCode !== undefined) return closeCode;
  }
  throw ENDED;
}

/** Resolves when the client has room for more; throws when it is gone. */
function sendOrWait(webSocket: WebSocket, message: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    webSocket.send(message, { binary: true }, (error) => (error ? reject(error) : resolve()));
    if (webSocket.readyState === webSocket.OPEN && webSocket.bufferedAmount < WAITING_BYTES) resolve();
  });
}

/** A stream that ended without a word: by what became of the session. */
async function explain(
  deps: RelayDeps,
  session: Attached["session"],
  webSocket: WebSocket,
  { protocol, cause }: { protocol: Protocol; cause: unknown },
): Promise<void> {
  const error = await brokenOff(deps, session, WORDS, cause);
  if (error.code !== "internal") return webSocket.close(WS_CLOSE.goingAway, oneLine(error.message, 100));
  if (protocol.endsSilently && cause === ENDED) return webSocket.close(WS_CLOSE.normal);
  const last = protocol.failure(error.message);
  if (last) webSocket.send(last, { binary: true });
  webSocket.close(WS_CLOSE.internal);
}

const WORDS: BrokenOffWords = {
  paused: "the session was paused",
  exchanged: "the session was paused and woken, or restored",
  unknown: "the connection to the session's machine broke",
};
