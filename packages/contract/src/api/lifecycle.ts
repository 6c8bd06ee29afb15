import { z } from "zod";
import { SessionRecord } from "./sessions.ts";
import { instant } from "./wire-types.ts";

const rfc3339 = instant("must be an RFC 3339 timestamp");

/** Body of `POST /v1/sessions/{id}/pause`. Unknown fields are ignored. */
export const PauseRequest = z.object({ wake_at: rfc3339.nullish() }).meta({ id: "PauseRequest" });
export type PauseRequest = z.input<typeof PauseRequest>;

/** Duration of each stage of a pause, in milliseconds; included on request. */
export const PauseTiming = z
  .object({
    freeze: z.int().meta({ description: "until all processes of the guest were frozen" }),
    state: z.int().meta({ description: "saving the device state" }),
    memory: z.int().meta({ description: "saving the memory that changed" }),
    disk: z.int().meta({ description: "saving the disk that changed" }),
    publish: z.int().meta({ description: "until everything was durable" }),
    stopped: z.int().meta({ description: "how long the guest was stopped for the capture" }),
    total: z.int().meta({ description: "from the claim to paused" }),
  })
  .meta({ id: "PauseTiming" });
export type PauseTiming = z.infer<typeof PauseTiming>;

/** Answer of a pause: the session's record. */
export const PausedSession = SessionRecord.extend({ timing: PauseTiming.optional() }).meta({
  id: "PausedSession",
});
export type PausedSession = z.infer<typeof PausedSession>;
