/**
 * Runs a command in a machine and passes its frames on, checked. Output over the caller's limit is dropped here too,
 * because the guest may have replaced the agent.
 */
import { ExecEnd, type ExecSpec, encodeFrame, FRAME, type FrameAsSent } from "@vivarium/contract/guest";
import type { AnswerCheck } from "./answer-check.ts";
import { assertAccepted } from "./answers.ts";
import type { AgentClient } from "./client.ts";
import { FrameCheck } from "./frame-check.ts";

/** How long past its time limit a command may run on without an end frame or output. Long: emulated guests are slow. */
const OVERDUE_MS = 10_000;

/** Resolves once the command is spawned. Destroying the stream kills the command's whole process tree. */
export async function execInGuest(
  agent: AgentClient,
  spec: ExecSpec,
  overdueMs = OVERDUE_MS,
): Promise<AnswerCheck> {
  const answer = await agent.request("POST", "/v1/exec", { body: spec, isRepeatable: false });
  await assertAccepted(answer);
  const checked = new ExecCheck(spec.output_limit_bytes ?? Number.POSITIVE_INFINITY).follow(answer.stream);
  // The agent ends a command at its time limit. If not, the guest has stopped or replaced it.
  const dueAt = Date.now() + spec.timeout_ms + overdueMs;
  const isOverdue = () => Date.now() >= Math.max(dueAt, checked.heardAt + overdueMs);
  checked.breakOffWhen(isOverdue, overdueMs, "the agent did not end the command at its time limit");
  return checked;
}

export class ExecCheck extends FrameCheck {
  /** Output bytes that still may pass, by frame type. */
  readonly #bytesLeft: Map<number, number>;
  /** Frame types whose output was cut. */
  readonly #cut = new Set<number>();

  constructor(limitBytes: number) {
    super("exit");
    this.#bytesLeft = new Map([
      [FRAME.stdout, limitBytes],
      [FRAME.stderr, limitBytes],
    ]);
  }

  protected override acceptFrame(frame: FrameAsSent): boolean {
    const isExit = frame.type === FRAME.exit;
    if (isExit) this.#acceptExit(frame.payload);
    else this.#acceptOutput(frame);
    return isExit;
  }

  /** Passes the agent's bytes on unchanged, unless the output has to be cut. */
  #acceptOutput({ type, payload, whole }: FrameAsSent): void {
    const left = this.#bytesLeft.get(type);
    if (left === undefined) throw new Error(`the agent sent a frame of type ${type} for a command`);
    if (payload.length <= left) {
      this.#bytesLeft.set(type, left - payload.length);
      if (payload.length > 0) this.push(whole);
      return;
    }
    this.#cut.add(type);
    this.#bytesLeft.set(type, 0);
    if (left > 0) this.push(encodeFrame(type, payload.subarray(0, left)));
  }

  #acceptExit(payload: Buffer): void {
    const end = ExecEnd.parse(JSON.parse(payload.toString("utf8")));
    const stdout_truncated = end.stdout_truncated || this.#cut.has(FRAME.stdout);
    const stderr_truncated = end.stderr_truncated || this.#cut.has(FRAME.stderr);
    this.push(encodeFrame(FRAME.exit, JSON.stringify({ ...end, stdout_truncated, stderr_truncated })));
  }
}
