import type { ServerResponse } from "node:http";

/** Calls back once the answer is sent or its client has left; at once if that has happened: no event follows then. */
export function onceClosed(response: ServerResponse, then: () => void): void {
  if (response.closed || response.destroyed) then();
  else response.once("close", then);
}
