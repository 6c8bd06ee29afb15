import type {
  BatchExecRequest,
  BatchExecResult,
  ExecExit,
  ExecRequest,
  ExecResult,
} from "@vivarium/contract/api";
import { decodeBase64 } from "./base64.ts";
import { errorFromNetwork, VivariumError } from "./errors.ts";
import { readEvents, type ServerSentEvent } from "./sse.ts";
import { type CallOptions, send, sendJson, type Transport } from "./transport.ts";

/** Events of a streamed exec: raw output as it is produced, then exactly one `exit`. */
export type ExecEvent =
  | { type: "stdout"; data: Uint8Array }
  | { type: "stderr"; data: Uint8Array }
  | { type: "exit"; data: ExecExit };

/** Runs a command to its end. A broken connection does not stop the command, and it is never sent twice. */
export function execBuffered(
  transport: Transport,
  sessionId: string,
  request: ExecRequest,
  options: CallOptions = {},
): Promise<ExecResult> {
  return sendJson(transport, {
    method: "POST",
    path: `/v1/sessions/${encodeURIComponent(sessionId)}/exec`,
    body: request,
    repeatable: false,
    ...options,
  });
}

/** Runs a command and yields its output as it comes. Leaving the loop, or aborting the signal, kills the command. */
export async function* execStream(
  transport: Transport,
  sessionId: string,
  request: ExecRequest,
  options: CallOptions = {},
): AsyncGenerator<ExecEvent, void, void> {
  const response = await send(transport, {
    method: "POST",
    path: `/v1/sessions/${encodeURIComponent(sessionId)}/exec`,
    query: { stream: true },
    body: request,
    headers: { accept: "text/event-stream" },
    repeatable: false,
    ...options,
  });
  let ended = false;
  try {
    for await (const event of readEvents(response.body ?? [])) {
      const parsed = toExecEvent(event);
      if (parsed === undefined) continue;
      ended = parsed.type === "exit";
      yield parsed;
      if (ended) return;
    }
  } catch (cause) {
    options.signal?.throwIfAborted();
    throw cause instanceof VivariumError ? cause : interrupted(errorFromNetwork(cause, transport.url));
  }
  if (!ended) throw interrupted();
}

/** Runs one command in many sessions at once; each item has its own outcome. */
export function batchExec(
  transport: Transport,
  request: BatchExecRequest,
  options: CallOptions = {},
): Promise<BatchExecResult> {
  return sendJson(transport, {
    method: "POST",
    path: "/v1/sessions/batch/exec",
    body: request,
    repeatable: false,
    ...options,
  });
}

function toExecEvent({ event, data }: ServerSentEvent): ExecEvent | undefined {
  if (event === "stdout" || event === "stderr") return { type: event, data: decodeBase64(data) };
  if (event === "exit") return { type: "exit", data: JSON.parse(data) as ExecExit };
  if (event === "error") throw new VivariumError("exec_failed", data, { status: 200 });
  return undefined;
}

function interrupted(cause?: unknown): VivariumError {
  const message = "the stream broke before the command ended; the service has stopped the command";
  return new VivariumError("stream_interrupted", message, { status: 200, cause });
}
