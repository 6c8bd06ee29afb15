/** Collects a command's output, and forms the fields of buffered answers. */
import { ExecEnd, FRAME, type Frame } from "@vivarium/contract/guest";
import { type EncodedOutput, OutputBuffer } from "./output.ts";
import { FREE_BYTES, type OutputQuota } from "./output-quota.ts";

/** The output and the end of a command. */
export interface CollectedExec {
  stdout: OutputBuffer;
  stderr: OutputBuffer;
  end: ExecEnd;
}

/**
 * Reads a command's frames to the end, and waits for the output quota when the output is long. Throws when the frames
 * break off, so that no exit code is ever made up.
 */
export async function collect(
  frames: AsyncIterable<Frame>,
  { limitBytes, reservation }: { limitBytes: number; reservation: OutputQuota },
): Promise<CollectedExec> {
  const stdout = new OutputBuffer(limitBytes);
  const stderr = new OutputBuffer(limitBytes);
  for await (const { type, payload } of frames) {
    if (type === FRAME.stdout) stdout.push(payload);
    else if (type === FRAME.stderr) stderr.push(payload);
    else return finish(stdout, stderr, endOf(type, payload));
    if (stdout.sizeBytes + stderr.sizeBytes > FREE_BYTES) await reservation.take();
  }
  throw new Error("the output ended without an exit");
}

function finish(stdout: OutputBuffer, stderr: OutputBuffer, end: ExecEnd): CollectedExec {
  stdout.isCut ||= end.stdout_truncated;
  stderr.isCut ||= end.stderr_truncated;
  return { stdout, stderr, end };
}

/** The end of the command, from its last frame. */
export function endOf(type: Frame["type"], payload: Buffer): ExecEnd {
  if (type !== FRAME.exit) throw new Error(`the agent lost the command: ${payload.toString("utf8", 0, 200)}`);
  return ExecEnd.parse(JSON.parse(payload.toString("utf8")));
}

/** The output fields of every buffered answer. */
export function outputFields({ stdout, stderr, end }: CollectedExec) {
  return {
    ...streamFields(stdout.toText(), stderr.toText(), stdout.isCut || stderr.isCut),
    exit_code: end.exit_code,
    duration_ms: Math.round(end.duration_us / 1000),
    timed_out: end.timed_out,
  };
}

export function streamFields(out: EncodedOutput, err: EncodedOutput, isCut: boolean) {
  return {
    stdout: out.text,
    stderr: err.text,
    ...(out.encoding && { stdout_encoding: out.encoding }),
    ...(err.encoding && { stderr_encoding: err.encoding }),
    ...(isCut && { truncated: true as const }),
  };
}
