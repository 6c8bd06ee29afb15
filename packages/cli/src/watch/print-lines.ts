import { renderChange } from "../print/change.ts";
import type { Terminal } from "../terminal.ts";
import type { Change } from "./changes.ts";
import type { Poll } from "./follow.ts";

/** Prints the sessions once, then one line for each change, for pipes and logs. */
export async function printLines(
  terminal: Terminal,
  polls: AsyncIterable<Poll>,
  { json }: { json: boolean },
): Promise<void> {
  let isFirst = true;
  let isSilent = false;
  for await (const { at, sessions, changes, failure } of polls) {
    const initial = sessions.toReversed().map((session): Change => {
      const { session_id, name, state } = session;
      return { at: at.toISOString(), session_id, name, to: state };
    });
    for (const change of isFirst ? initial : changes) {
      terminal.out(json ? JSON.stringify(change) : renderChange(change));
    }
    isFirst = false;
    // One line per outage, not one per poll.
    if (failure && !isSilent) terminal.note(`viv: ${failure.message}; trying again`);
    if (!failure && isSilent) terminal.note("viv: the service answers again");
    isSilent = failure !== undefined;
  }
}
