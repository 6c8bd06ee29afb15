import { z } from "zod";
import { SessionRecord } from "./sessions.ts";
import { instant } from "./wire-types.ts";

const rfc3339 = instant("must be an RFC 3339 timestamp");

/** Body of `POST /v1/sessions/{id}/pause` (wire.md 4.8). Unknown fields are ignored. */
export const PauseRequest = z.object({ wake_at: rfc3339.nullish() }).meta({ id: "PauseRequest" });
export type PauseRequest = z.input<typeof PauseRequest>;

/** Where a pause's time went, in milliseconds; shown to who asks for it. */
export const PauseTiming = z
  .object({
    freeze: z.int().meta({ description: "until what ran in the guest stood still" }),
    state: z.int().meta({ description: "saving the devices" }),
    memory: z.int().meta({ description: "saving the memory that changed" }),
    disk: z.int().meta({ description: "saving the disk that changed" }),
    publish: z.int().meta({ description: "until all of it was durable" }),
    stopped: z.int().meta({ description: "how long the guest stood still for the capture" }),
    total: z.int().meta({ description: "from the claim to paused" }),
  })
  .meta({ id: "PauseTiming" });
export type PauseTiming = z.infer<typeof PauseTiming>;

/** Answer of a pause: the session's record. */
export const PausedSession = SessionRecord.extend({ timing: PauseTiming.optional() }).meta({
  id: "PausedSession",
});
export type PausedSession = z.infer<typeof PausedSession>;
