import type { SessionRecord } from "@vivarium/sdk";
import { renderSession } from "../print/session.ts";
import { noteTiming, type Timing } from "../print/timing.ts";
import type { Call } from "./verb.ts";

/** A session as a verb's result: all of it for a human, its id for a script, its record as JSON. */
export function showSession(call: Call, record: Omit<SessionRecord, "timing"> & { timing?: Timing }): void {
  call.print(
    record,
    () => renderSession(record, call.paint),
    () => record.session_id,
  );
  noteTiming(call, record);
}
