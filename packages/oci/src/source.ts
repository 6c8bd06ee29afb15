/** Where an image comes from: its documents and content by name and digest. None of what a source sends is believed. */
import type { Answer } from "./http-client.ts";
import type { PullLimits } from "./limits.ts";

export interface Sent extends Pick<Answer, "status" | "valuesOf" | "body" | "discard"> {
  /** Name of the sender, for messages. */
  sender: string;
}

export interface ImageSource {
  readonly limits: PullLimits;
  /** A manifest or an index, by tag or digest. */
  manifest(name: string, accept: string, signal: AbortSignal): Promise<Sent>;
  /** Content by its digest, from `start`. The status is 200 for all of it, 206 for a part, and 416 without that part. */
  blob(digest: string, start: number, signal: AbortSignal): Promise<Sent>;
}
