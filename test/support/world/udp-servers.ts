/** Runs a UDP server that echoes and logs every datagram. */
import { createSocket } from "node:dgram";
import { once } from "node:events";
import type { WorldLog } from "./events.ts";

const SHOWN = 64;

export async function listenUdp(log: WorldLog, host: string, port: number): Promise<void> {
  const socket = createSocket("udp4");
  socket.on("message", (message, peer) => {
    log.add({
      kind: "udp",
      ...{ host, port },
      text: message.toString("latin1", 0, SHOWN),
      bytes: message.length,
    });
    socket.send(message, peer.port, peer.address, () => {});
  });
  socket.bind({ address: host, port });
  await once(socket, "listening");
}
