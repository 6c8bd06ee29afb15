import { type IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { pipelineOf } from "./pipelining.ts";

/**
 * An ordinary response to a request whose connection Node has released, as it does for upgrades and CONNECT. The
 * connection ends with the response. Undefined while an earlier request is unanswered: a connection carries one
 * response at a time, and Node would throw.
 */
export function responseOver(
  socket: Duplex,
  request: IncomingMessage,
  end: (socket: Socket) => void = endSoon,
): ServerResponse | undefined {
  socket.on("error", () => socket.destroy());
  if (pipelineOf(socket).unanswered > 0) return undefined;
  const connection = socket as Socket;
  const response = new ServerResponse(request);
  response.shouldKeepAlive = false;
  response.assignSocket(connection);
  // Node passes `drain` on only while it has the connection.
  socket.on("drain", () => response.emit("drain"));
  response.once("finish", () => {
    response.detachSocket(connection);
    // Node emits `close` only for a response that has its socket. Listeners count the bytes of the response until then.
    connection.once("close", () => response.emit("close"));
    end(connection);
  });
  return response;
}

/** Ends the connection after its last byte. Later versions of Node pass no Socket while a request's body is incomplete. */
function endSoon(socket: Socket): void {
  if (socket instanceof Socket) socket.destroySoon();
  else (socket as Duplex).destroy();
}
