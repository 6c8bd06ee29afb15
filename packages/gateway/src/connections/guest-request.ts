/** A request of a guest to a bound origin, in either version of HTTP. */
import type { Writable } from "node:stream";
import type { Body } from "@vivarium/http1/copy-body";
import type { Header } from "@vivarium/http1/headers";
import type { RequestHead } from "./judge-request.ts";

export interface GuestRequest extends RequestHead {
  body: Body;
  hasBody: boolean;
  answer: GuestAnswer;
}

export interface GuestAnswer {
  /** Whether an answer can still be sent. */
  readonly isOpen: boolean;
  /** Receives the body. */
  to: Writable;
  /** Sends `100 Continue`. */
  welcome(): void;
  /** Throws for headers that cannot be written. `isLast`: no body follows. */
  sendHead(status: number, headers: readonly Header[], isLast: boolean): void;
  end(trailers: readonly Header[]): void;
  /** Sends a whole answer, which ends the request. */
  refuse(status: number, body: string): void;
  /** Ends an answer that is not whole, so that the guest notices. */
  cut(): void;
  /** Calls back when the answer was sent, or the guest has left. */
  onceOver(callback: () => void): void;
}

/** Headers of a refusal. */
export function refusalHeaders(body: string): Header[] {
  return [
    ["content-type", "application/json"],
    ["content-length", String(Buffer.byteLength(body))],
    ["cache-control", "no-store"],
  ];
}
