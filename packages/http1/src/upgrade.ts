import { type IncomingMessage, ServerResponse } from "node:http";
import { Socket } from "node:net";
import type { Duplex } from "node:stream";
import { pipelineOf } from "./pipelining.ts";

/**
 * An ordinary response to a request whose connection Node has released, as it does for upgrades and CONNECT. The
 * connection ends with the response. Undefined while an earlier request is unanswered: a connection carries one response at
 * a time, and Node would throw.
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
  // Node passes this event on only while it has the connection.
  socket.on("drain", () => response.emit("drain"));
  response.once("finish", () => {
    response.detachSocket(connection);
    // Node emits this only for a response that has its socket. Listeners count its bytes until then.
    connection.once("close", () => response.emit("close"));
    end(connection);
  });
  return response;
}

/** Later versions of Node hand over a stream that is not a socket while the request's body is incomplete. */
function endSoon(socket: Socket): void {
  if (socket instanceof Socket) socket.destroySoon();
  else (socket as Duplex).destroy();
}
