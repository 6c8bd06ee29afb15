/** After a granted upgrade the gateway only moves bytes, each way as fast as they are read, until either side is gone. */
import type { IncomingMessage } from "node:http";
import type { Socket } from "node:net";
import { headersForVisitor } from "./pass-headers.ts";

interface Upgrade {
  answer: IncomingMessage;
  /** What the guest sent right after its answer. */
  head: Buffer;
  guest: Socket;
  visitor: Socket;
  setCookie: string | undefined;
}

export function passUpgrade({ answer, head, guest, visitor, setCookie }: Upgrade): void {
  const headers = headersForVisitor(answer.rawHeaders).filter(([name]) => !/^content-length$/i.test(name));
  if (setCookie !== undefined) headers.push(["Set-Cookie", setCookie]);
  const lines = headers.map(([name, value]) => `${name}: ${value}\r\n`);
  visitor.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n${lines.join("")}\r\n`,
    "latin1",
  );
  visitor.write(head);
  guest.pipe(visitor);
  visitor.pipe(guest);
  tieEnds(guest, visitor);
  tieEnds(visitor, guest);
}

/** What was received before the end still arrives. */
function tieEnds(one: Socket, other: Socket): void {
  one.on("error", () => one.destroy());
  one.once("close", () => other.destroySoon());
}
