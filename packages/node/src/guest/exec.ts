/**
 * Runs a command in a machine and hands its frames on, checked: known types, bounded sizes, one end. What the agent
 * sends past the caller's limit is dropped here too, because the guest may have replaced the agent.
 */
import type { ClientHttp2Stream } from "node:http2";
import { Transform, type TransformCallback } from "node:stream";
import {
  ExecEnd,
  type ExecSpec,
  encodeFrame,
  FRAME,
  type Frame,
  FrameDecoder,
} from "@vivarium/contract/guest";
import { type AgentClient, agentRefusal, readJson } from "./client.ts";

/** How long past its time limit a command may stay silent and unended; generous, because emulated guests are slow. */
const OVERDUE_MS = 10_000;

/** Resolves once the command is spawned. Destroying the stream kills the command's whole process tree. */
export async function execInGuest(
  agent: AgentClient,
  spec: ExecSpec,
  overdueMs = OVERDUE_MS,
): Promise<Transform> {
  const answer = await agent.request("POST", "/v1/exec", spec);
  if (answer.status !== 200) throw agentRefusal(await readJson(answer.stream));
  const checked = new FrameCheck(spec.output_limit_bytes ?? Number.POSITIVE_INFINITY);
  connectStreams(answer.stream, checked);
  breakOffWhenOverdue(checked, spec.timeout_ms, overdueMs);
  return checked;
}

/**
 * The agent ends a command at its time limit. One that does not was stopped or replaced by its guest; the caller is not
 * kept waiting for it. A reader that is slow to take what was sent is no fault of the agent and is waited for.
 */
function breakOffWhenOverdue(checked: FrameCheck, timeoutMs: number, overdueMs: number): void {
  const dueAt = Date.now() + timeoutMs + overdueMs;
  const check = setInterval(() => {
    const waitsForReader = checked.readableLength >= checked.readableHighWaterMark;
    if (Date.now() < Math.max(dueAt, checked.heardAt + overdueMs) || waitsForReader) return;
    checked.destroy(new Error("the agent did not end the command at its time limit"));
  }, overdueMs / 10);
  check.unref();
  checked.once("close", () => clearInterval(check));
}

function connectStreams(source: ClientHttp2Stream, checked: FrameCheck): void {
  checked.once("close", () => source.close(8)); // CANCEL: the agent kills the command if it still runs
  source.once("aborted", () => checked.destroy(new Error("the agent broke the stream")));
  source.once("close", () => {
    if (!source.readableEnded) checked.destroy(new Error("the agent broke the stream"));
  });
  source.pipe(checked);
}

class FrameCheck extends Transform {
  readonly #decoder = new FrameDecoder();
  readonly #left: Map<number, number>;
  readonly #cut = new Set<number>();
  #ended = false;
  heardAt = Date.now();

  constructor(limitBytes: number) {
    super();
    this.#left = new Map([
      [FRAME.stdout, limitBytes],
      [FRAME.stderr, limitBytes],
    ]);
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.heardAt = Date.now();
    try {
      for (const frame of this.#decoder.push(chunk)) this.#accept(frame);
      done();
    } catch (error) {
      done(error as Error);
    }
  }

  override _flush(done: TransformCallback): void {
    done(this.#ended ? null : new Error("the agent ended the stream without an exit"));
  }

  #accept(frame: Frame): void {
    if (this.#ended) throw new Error("the agent sent a frame after the end");
    if (frame.type === FRAME.exit) {
      this.#acceptExit(frame.payload);
      return;
    }
    if (frame.type === FRAME.error) {
      this.#ended = true;
      this.push(encodeFrame(FRAME.error, frame.payload.subarray(0, 1024)));
      return;
    }
    const left = this.#left.get(frame.type) ?? 0;
    const kept = frame.payload.length <= left ? frame.payload : frame.payload.subarray(0, left);
    if (kept.length < frame.payload.length) this.#cut.add(frame.type);
    this.#left.set(frame.type, left - kept.length);
    if (kept.length > 0) this.push(encodeFrame(frame.type, kept));
  }

  #acceptExit(payload: Buffer): void {
    const end = ExecEnd.parse(JSON.parse(payload.toString("utf8")));
    this.#ended = true;
    const stdout_truncated = end.stdout_truncated || this.#cut.has(FRAME.stdout);
    const stderr_truncated = end.stderr_truncated || this.#cut.has(FRAME.stderr);
    this.push(encodeFrame(FRAME.exit, JSON.stringify({ ...end, stdout_truncated, stderr_truncated })));
  }
}
