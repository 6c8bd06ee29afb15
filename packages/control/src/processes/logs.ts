import { LIMITS, type ProcessLogs } from "@vivarium/contract/api";
import { FRAME, type Frame, LogEnd } from "@vivarium/contract/guest";
import type { Scope } from "../access/principal.ts";
import { streamFields } from "../exec/collect.ts";
import { NodeError } from "../fleet/node-error.ts";
import { readGuest } from "../guest/call-guest.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { machineIdOf } from "../sessions/state.ts";
import { LogTail } from "./log-tail.ts";
import { checkName, type NamedProcess, rewordNotFound } from "./name.ts";
import { callProcess } from "./read.ts";

/** Reads the last output of a process. */
export async function readLogs(
  deps: MoveDeps,
  scope: Scope,
  asked: NamedProcess & { signal: AbortSignal },
): Promise<ProcessLogs> {
  await checkName(deps.db, scope, asked);
  const path = `processes/${asked.name}/logs`;
  const query = { tail_bytes: LIMITS.processLogReadBytes };
  const { stdout, stderr } = await readGuest(deps, scope, asked, async (session, signal) => {
    const call = { method: "GET", path, query, signal } as const;
    const frames = await deps.nodes.guestFrames(machineIdOf(session), call).catch(rewordNotFound(asked.name));
    return await collectTails(frames);
  });
  const isCutAtEnd = stdout.endsInsideCharacter || stderr.endsInsideCharacter;
  const isGrowing = isCutAtEnd && (await callProcess(deps, scope, "GET", asked)).state === "running";
  const texts = [stdout.toText({ isGrowing }), stderr.toText({ isGrowing })] as const;
  return { name: asked.name, ...streamFields(...texts, stdout.isCut || stderr.isCut) };
}

async function collectTails(frames: AsyncIterable<Frame>): Promise<{ stdout: LogTail; stderr: LogTail }> {
  const stdout = new LogTail(LIMITS.processLogReadBytes);
  const stderr = new LogTail(LIMITS.processLogReadBytes);
  for await (const { type, payload } of frames) {
    if (type === FRAME.stdout) stdout.push(payload);
    else if (type === FRAME.stderr) stderr.push(payload);
    else {
      const end = logEndOf(type, payload);
      if (end.stdout_truncated) stdout.markCut();
      if (end.stderr_truncated) stderr.markCut();
      return { stdout, stderr };
    }
  }
  throw new NodeError("broken", "the log ended without its end");
}

/** The end of the log, from its last frame. */
export function logEndOf(type: Frame["type"], payload: Buffer): LogEnd {
  if (type !== FRAME.eof)
    throw new NodeError("broken", `the agent lost the log: ${payload.toString("utf8", 0, 200)}`);
  try {
    return LogEnd.parse(JSON.parse(payload.toString("utf8")));
  } catch (cause) {
    throw new NodeError("garbled", "the end of the log does not fit the contract", { cause });
  }
}
