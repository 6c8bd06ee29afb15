/** Parameters shared by the routes of one session. */
import { z } from "zod";
import { queryFlag } from "../http/query.ts";

export const SessionParams = z.object({ id: z.string() });

/** `timing=true`: the answer includes how long each stage of the start, pause or wake took. */
export const RecordQuery = z.object({
  timing: queryFlag
    .optional()
    .meta({ description: "tell where the time of the create, the pause or the wake went, once it is over" }),
});

/** `timing=true`: the answer shows where the time of the call went. */
export const TimingQuery = z.object({
  timing: queryFlag.optional().meta({ description: "tell where the time went" }),
});
