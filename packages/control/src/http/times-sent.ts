import type { IncomingMessage } from "node:http";

/** How many headers of this name (in lower case) a request has. Of some headers Node keeps only the first. */
export function timesSent({ rawHeaders }: IncomingMessage, name: string): number {
  return rawHeaders.filter((text, index) => index % 2 === 0 && text.toLowerCase() === name).length;
}
