/** What requests about one session have in common. */
import { z } from "zod";
import { queryFlag } from "../http/query.ts";

export const SessionParams = z.object({ id: z.string() });

/** `timing=true`: the answer tells where the time of its start, or of what was asked for, went. */
export const RecordQuery = z.object({
  timing: queryFlag
    .optional()
    .meta({ description: "tell where the time of the create, the pause or the wake went, once it is over" }),
});
