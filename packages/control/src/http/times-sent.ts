import type { IncomingMessage } from "node:http";

/** How many headers of this name, in lower case, a request has: of some Node keeps the first and drops the others. */
export function timesSent({ rawHeaders }: IncomingMessage, name: string): number {
  return rawHeaders.filter((text, index) => index % 2 === 0 && text.toLowerCase() === name).length;
}
