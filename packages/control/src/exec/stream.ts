import { FRAME, type Frame } from "@vivarium/contract/guest";
import { type BrokenOffDeps, goesOn } from "../guest/broken-off.ts";
import { errorBody, oneLine } from "../http/render-error.ts";
import type { EventStream } from "../http/sse.ts";
import type { SessionRow } from "../sessions/store.ts";
import { endOf } from "./collect.ts";
import { brokenOff } from "./open-exec.ts";

const ERROR_CHARS = 1000;

/**
 * Passes a running command's frames on as events; ends with exactly one `exit` or `error`. False when the command is
 * not over: its session was paused under it.
 */
export async function streamFrames(
  deps: BrokenOffDeps,
  session: SessionRow,
  frames: AsyncIterable<Frame>,
  events: EventStream,
): Promise<boolean> {
  try {
    await events.send("exit", await relayOutput(frames, events));
    return true;
  } catch (cause) {
    if (events.isClosed) return true;
    const error = await brokenOff(deps, session, cause);
    await events.send("error", oneLine(errorBody(error).error, ERROR_CHARS));
    return !goesOn(error);
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
