/** Follows a process's log, with its kept output and then new output. */
import { FRAME, type Frame } from "@vivarium/contract/guest";
import type { Scope } from "../access/principal.ts";
import { openGuest } from "../guest/call-guest.ts";
import { type BreakTexts, explainBreak } from "../guest/explain-break.ts";
import { errorBody, oneLine } from "../http/render-error.ts";
import type { EventStream } from "../http/sse.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { SessionRow } from "../sessions/store.ts";
import { logEndOf } from "./logs.ts";
import { checkName, type NamedProcess, rewordNotFound } from "./name.ts";

const ERROR_CHARS = 1000;

export interface Follow {
  session: SessionRow;
  frames: AsyncIterable<Frame>;
}

/** Opens the log. Following does not keep the session from becoming idle. */
export async function openFollow(
  deps: MoveDeps,
  scope: Scope,
  { signal, ...asked }: NamedProcess & { signal: AbortSignal },
): Promise<Follow> {
  await checkName(deps.db, scope, asked);
  const path = `processes/${asked.name}/logs`;
  const call = { method: "GET", path, query: { follow: true }, signal } as const;
  const { session, result, release } = await openGuest(deps, scope, asked.sessionId, (row) =>
    deps.nodes.guestFrames(machineIdOf(row), call).catch(rewordNotFound(asked.name)),
  );
  release();
  return { session, frames: result };
}

/** Sends the log as events. The stream ends with exactly one `eof` or `error`. */
export async function relayFollow(
  deps: MoveDeps,
  { session, frames }: Follow,
  events: EventStream,
): Promise<void> {
  try {
    await relayOutput(frames, events);
    await events.send("eof", "");
  } catch (cause) {
    if (events.isClosed) return;
    const error = await explainBreak(deps, session, BREAK_TEXTS, cause);
    await events.send("error", oneLine(errorBody(error).error, ERROR_CHARS)).catch(() => undefined);
  } finally {
    events.end();
  }
}

async function relayOutput(frames: AsyncIterable<Frame>, events: EventStream): Promise<void> {
  for await (const { type, payload } of frames) {
    if (type === FRAME.stdout) await events.sendBytes("stdout", payload);
    else if (type === FRAME.stderr) await events.sendBytes("stderr", payload);
    else return void logEndOf(type, payload);
  }
  throw new Error("the log ended without its end");
}

const BREAK_TEXTS: BreakTexts = {
  paused: "the session was paused; the process goes on after the wake, follow its log again then",
  exchanged: "the session was paused and woken, or restored; follow the log again",
  unknown: "the connection to the session's machine broke; follow the log again",
};
