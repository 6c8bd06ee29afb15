import { FRAME, type Frame } from "@vivarium/contract/guest";
import { type BreakDeps, mayStillRun } from "../guest/explain-break.ts";
import { errorBody, oneLine } from "../http/render-error.ts";
import type { EventStream } from "../http/sse.ts";
import type { SessionRow } from "../sessions/store.ts";
import { endOf } from "./collect.ts";
import { explainCommandBreak } from "./open-exec.ts";

const ERROR_CHARS = 1000;

/**
 * Sends a running command's frames as events. The stream ends with exactly one `exit` or `error`. Returns false
 * when the command may still run, because its session was paused.
 */
export async function streamFrames(
  deps: BreakDeps,
  session: SessionRow,
  frames: AsyncIterable<Frame>,
  events: EventStream,
): Promise<boolean> {
  try {
    await events.send("exit", await relayOutput(frames, events));
    return true;
  } catch (cause) {
    if (events.isClosed) return true;
    const error = await explainCommandBreak(deps, session, cause);
    await events.send("error", oneLine(errorBody(error).error, ERROR_CHARS));
    return !mayStillRun(error);
  }
}

async function relayOutput(frames: AsyncIterable<Frame>, events: EventStream): Promise<string> {
  for await (const { type, payload } of frames) {
    if (type !== FRAME.stdout && type !== FRAME.stderr) {
      const end = endOf(type, payload);
      const durationMs = Math.round(end.duration_us / 1000);
      return JSON.stringify({ exit_code: end.exit_code, timed_out: end.timed_out, duration_ms: durationMs });
    }
    await events.sendBytes(type === FRAME.stdout ? "stdout" : "stderr", payload);
  }
  throw new Error("the output ended without an exit");
}
