import type { SessionRecord } from "@vivarium/sdk";
import type { Context } from "../context.ts";
import { paintFor } from "./paint.ts";
import { renderSession } from "./session.ts";
import { noteTiming, type Timing } from "./timing.ts";

/** A session as a verb's result: all of it for a human, its id for a script, its record as JSON. */
export function showSession(
  context: Pick<Context, "terminal" | "config">,
  record: Omit<SessionRecord, "timing"> & { timing?: Timing },
  options: { json?: boolean; timing?: boolean },
): void {
  const { terminal } = context;
  if (options.json) terminal.out(JSON.stringify(record));
  else terminal.out(terminal.isInteractive ? renderSession(record, paintFor(context)) : record.session_id);
  noteTiming(terminal, options, record);
}
