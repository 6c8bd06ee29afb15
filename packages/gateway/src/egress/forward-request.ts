/** Forwards an admitted request of a guest to its server, and the answer back. */
import type { IncomingMessage, ServerResponse } from "node:http";
import { type Failure, forward } from "@vivarium/http1/forward";
import { headerPairs, valuesOf, withoutHopByHop } from "@vivarium/http1/headers";
import type { AdmittedRequest } from "./http-front.ts";
import { type Refusal, refusalOf, respondWith } from "./refuse-request.ts";
import { splice } from "./splice.ts";

/** Time limit for a server to grant a WebSocket. The guest is not read meanwhile: its leaving is noticed only then. */
const CONSENT_MS = 60_000;

/** `upgrade` is set for a WebSocket: its bytes are forwarded unread once the server has granted it. */
export function forwardRequest(
  { connection, request, path, headers }: AdmittedRequest,
  response: ServerResponse,
  upgrade?: { head: Buffer },
): void {
  const { flow, agent, log } = connection;
  const refuse = (refusal: Refusal) => respondWith(response, flow, refusal);
  if (upgrade && ["content-length", "transfer-encoding"].some((name) => valuesOf(headers, name).length > 0)) {
    refuse({ refused: "malformed", why: "a request for a WebSocket has no body" });
    return;
  }
  const forwarding = forward({
    ...{ request, response, log, path, upgrade },
    headers: upgrade ? [...headers, ["Connection", "Upgrade"], ["Upgrade", "websocket"]] : headers,
    connection: { agent },
    onAnswer: (answer: IncomingMessage) => {
      response.sendDate = false;
      return withoutHopByHop(headerPairs(answer.rawHeaders), ["transfer-encoding"]);
    },
    onConsent: (server) => splice(flow.guest, server),
    fail: (failure) => {
      // The server has just closed a kept-alive connection: the guest gets a reset, as it would without a gateway.
      if (isClosedByServer(failure)) flow.guest.resetAndDestroy();
      else refuse(refusalOf(failure));
    },
    cut: () => flow.cut("not_reachable"),
  });
  if (upgrade) {
    const late = () => forwarding?.upstream.destroy(new Error("the server did not answer"));
    forwarding?.upstream.setTimeout(CONSENT_MS, late);
  }
}

function isClosedByServer(failure: Failure): boolean {
  if (failure.why !== "no answer" || !failure.isReused) return false;
  const { code } = failure.error as NodeJS.ErrnoException;
  return code === "ECONNRESET" || code === "EPIPE";
}
