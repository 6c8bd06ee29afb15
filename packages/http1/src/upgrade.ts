import { type IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
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
  end: (socket: Socket) => void = (ended) => ended.destroySoon(),
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
    end(connection);
  });
  return response;
}
