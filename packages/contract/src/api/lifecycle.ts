/** Pausing a session, and the durations of a pause (docs/spec/sessions.md). */
import { z } from "zod";
import { SessionRecord } from "./sessions.ts";
import { instant, named } from "./wire-types.ts";

const rfc3339 = instant("must be an RFC 3339 timestamp");

/** Body of `POST /v1/sessions/{id}/pause`. Unknown fields are ignored. */
export const PauseRequest = named("PauseRequest", { wake_at: rfc3339.nullish() });

/** Duration of each stage of a pause, in milliseconds, which the caller gets on request. */
export const PauseTiming = named("PauseTiming", {
  freeze: z.int().meta({ description: "until all processes of the guest were frozen" }),
  state: z.int().meta({ description: "saving the device state" }),
  memory: z.int().meta({ description: "saving the memory that changed" }),
  disk: z.int().meta({ description: "saving the disk that changed" }),
  publish: z.int().meta({ description: "until everything was durable" }),
  stopped: z.int().meta({ description: "how long the guest was stopped for the capture" }),
  total: z.int().meta({ description: "from the claim to paused" }),
});

/** Answer of a pause: the session's record. */
export const PausedSession = SessionRecord.extend({ timing: PauseTiming.optional() }).meta({
  id: "PausedSession",
});
export type PausedSession = z.infer<typeof PausedSession>;
