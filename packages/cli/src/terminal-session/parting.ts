import type { SessionRecord } from "@vivarium/sdk";
import type { Ending } from "./attach.ts";

/** The message when a terminal was left or its program has exited; undefined when there is nothing to say. */
export function partingLine(
  record: Pick<SessionRecord, "session_id" | "on_pty_detach">,
  ending: Ending,
  name: string | undefined,
): string | undefined {
  const id = record.session_id;
  const what = ending.how === "exited" ? undefined : leftLine(id, name);
  const lines = [what, policyLine(record)].filter((line) => line !== undefined);
  return lines.length === 0 ? undefined : `viv: ${lines.join("\n     ")}`;
}

function leftLine(id: string, name: string | undefined): string {
  if (name === undefined) return "left; what ran in this terminal is ended";
  const option = name === "shell" ? "" : ` --terminal ${name}`;
  return `left terminal "${name}", which stays as it is; come back with: viv shell${option} ${id}`;
}

function policyLine({
  session_id,
  on_pty_detach = "pause",
}: Pick<SessionRecord, "session_id" | "on_pty_detach">) {
  if (on_pty_detach === "keep_live") return undefined;
  return on_pty_detach === "pause"
    ? `session ${session_id} is paused in a moment, with all that runs in it, unless somebody else is attached; any use wakes it`
    : `session ${session_id} ends in a moment, unless somebody else is attached (its on_pty_detach is destroy)`;
}
