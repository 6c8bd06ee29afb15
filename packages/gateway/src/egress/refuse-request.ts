/** Answers a guest's refused HTTP request with the reason, and closes the connection. */
import { type ServerResponse, STATUS_CODES } from "node:http";
import type { EgressReason } from "@vivarium/contract/gateway";
import type { Failure } from "@vivarium/http1/forward";
import { DialRefused } from "./dial.ts";
import type { GuestFlow } from "./guest-flow.ts";

export interface Refusal {
  refused: EgressReason;
  why: string;
  /** HTTP status. Default: 400. */
  status?: number;
}

/** Cuts the connection when a response has begun. */
export function respondWith(response: ServerResponse, flow: GuestFlow, refusal: Refusal): void {
  flow.deny(refusal.refused);
  if (response.headersSent) {
    flow.cut(refusal.refused);
    return;
  }
  const body = bodyOf(refusal);
  response.writeHead(refusal.status ?? 400, headersOf(body));
  response.end(body);
}

/** Writes the answer as bytes, where Node has no response object. Cuts the connection while a response is in flight. */
export function closeWith(flow: GuestFlow, refusal: Refusal): void {
  flow.deny(refusal.refused);
  if (flow.unanswered > 0 || !flow.guest.writable) {
    flow.cut(refusal.refused);
    return;
  }
  const body = bodyOf(refusal);
  const status = refusal.status ?? 400;
  const lines = Object.entries(headersOf(body)).map(([name, value]) => `${name}: ${value}\r\n`);
  flow.guest.write(`HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n${lines.join("")}\r\n${body}`);
  flow.guest.destroySoon();
}

export function refusalOf(failure: Failure): Refusal {
  if (failure.why === "unwritable") {
    return { refused: "malformed", why: "the request cannot be written anew" };
  }
  if (failure.why === "bad answer") {
    return { refused: "not_reachable", status: 502, why: "what the server sent is not an HTTP answer" };
  }
  const reason = failure.error instanceof DialRefused ? failure.error.reason : "not_reachable";
  if (reason === "never_address") {
    return { refused: reason, status: 403, why: "this name leads to an address that no session may reach" };
  }
  if (reason === "not_resolved") return { refused: reason, status: 502, why: "this name has no address" };
  return { refused: reason, status: 502, why: "the server cannot be reached or does not speak HTTP" };
}

function headersOf(body: string): Record<string, string | number> {
  return {
    "content-type": "text/plain; charset=utf-8",
    "content-length": Buffer.byteLength(body),
    connection: "close",
  };
}

function bodyOf({ why }: Refusal): string {
  return `Refused by the sandbox's gateway: ${why}.\n`;
}
