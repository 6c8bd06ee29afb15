/**
 * Relays bytes between a client's WebSocket and its session's machine. Each side is read only as fast as the other
 * takes the bytes.
 */
import { WS_CLOSE } from "@vivarium/contract/api";
import type { WebSocket } from "ws";
import { type BreakTexts, explainBreak } from "../guest/explain-break.ts";
import { oneLine } from "../http/render-error.ts";
import type { Attached } from "./attach.ts";
import type { TerminalDeps } from "./deps.ts";
import type { Protocol } from "./messages.ts";

const ENDED = new Error("the stream ended");
/** The most that is buffered for a slow client before the machine is slowed down. */
const WAITING_BYTES = 256 * 1024;

/** Resolves when either side has ended. The WebSocket is closing or closed then. */
export async function relay(
  deps: TerminalDeps,
  attached: Attached,
  webSocket: WebSocket,
  protocol: Protocol,
): Promise<void> {
  const { session, stream, moved } = attached;
  const closeAfterMove = () => {
    webSocket.close(WS_CLOSE.goingAway, "the session was paused or destroyed");
    stream.destroy();
  };
  webSocket.on("message", (message: Buffer, isBinary: boolean) => {
    if (webSocket.readyState !== webSocket.OPEN) return;
    if (!isBinary) return webSocket.close(WS_CLOSE.unsupportedData, "messages must be binary");
    deps.activity.touch(session.id);
    for (const bytes of protocol.toGuest(message)) writeOrWait(webSocket, stream, bytes);
  });
  webSocket.once("close", () => stream.destroy());
  moved.addEventListener("abort", closeAfterMove, { once: true });
  try {
    if (moved.aborted) closeAfterMove();
    const code = await relayToClient(deps, attached, webSocket, protocol);
    webSocket.close(code);
  } catch (cause) {
    if (webSocket.readyState === webSocket.OPEN) await explain(deps, session, webSocket, { protocol, cause });
  } finally {
    moved.removeEventListener("abort", closeAfterMove);
    stream.destroy();
    // A paused socket would not read the peer's close frame.
    webSocket.resume();
  }
}

/** Writes to the machine. While the machine does not read, the client is not read. */
function writeOrWait(webSocket: WebSocket, stream: Attached["stream"], bytes: Buffer): void {
  if (stream.destroyed || stream.write(bytes) || webSocket.isPaused) return;
  webSocket.pause();
  stream.once("drain", () => webSocket.resume());
}

/** Relays until the stream's last frame. Returns the code to close with. */
async function relayToClient(
  deps: TerminalDeps,
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

/** Resolves when the client's buffer has space again. Throws when the client is gone. */
function sendOrWait(webSocket: WebSocket, message: Buffer): Promise<void> {
  return new Promise((resolve, reject) => {
    webSocket.send(message, { binary: true }, (error) => (error ? reject(error) : resolve()));
    if (webSocket.readyState === webSocket.OPEN && webSocket.bufferedAmount < WAITING_BYTES) resolve();
  });
}

/** Closes after a stream without a last frame. The close code depends on what happened to the session. */
async function explain(
  deps: TerminalDeps,
  session: Attached["session"],
  webSocket: WebSocket,
  { protocol, cause }: { protocol: Protocol; cause: unknown },
): Promise<void> {
  const error = await explainBreak(deps, session, BREAK_TEXTS, cause);
  if (error.code !== "internal") return webSocket.close(WS_CLOSE.goingAway, oneLine(error.message, 100));
  if (protocol.endsSilently && cause === ENDED) return webSocket.close(WS_CLOSE.normal);
  const last = protocol.failure(error.message);
  if (last) webSocket.send(last, { binary: true });
  webSocket.close(WS_CLOSE.internal);
}

const BREAK_TEXTS: BreakTexts = {
  paused: "the session was paused",
  exchanged: "the session was paused and woken, or restored",
  unknown: "the connection to the session's machine broke",
};
