/** Runs commands in a session, with the output at the end or as a stream. */
import type { ExecExit, ExecRequest, ExecResult } from "@vivarium/contract/api";
import { decodeBase64 } from "./base64.ts";
import { readItems } from "./read-items.ts";
import type { ServerSentEvent } from "./sse.ts";
import { type CallOptions, postJson, sessionPath, type Transport } from "./transport.ts";

/** Events of a streamed command: output bytes as they are produced, then exactly one `exit`. */
export type ExecEvent =
  | { type: "stdout"; data: Uint8Array }
  | { type: "stderr"; data: Uint8Array }
  | { type: "exit"; data: ExecExit };

/** Runs a command to its end. A broken connection does not stop the command. The request is never sent twice. */
export function execBuffered(
  transport: Transport,
  sessionId: string,
  request: ExecRequest,
  options: CallOptions = {},
): Promise<ExecResult> {
  return postJson(transport, sessionPath(sessionId, "/exec"), request, { ...options, repeatable: false });
}

/** Runs a command and yields its output as it comes. Leaving the loop, or aborting the signal, kills the command. */
export function execStream(
  transport: Transport,
  sessionId: string,
  request: ExecRequest,
  options: CallOptions = {},
): AsyncGenerator<ExecEvent, void, void> {
  const path = sessionPath(sessionId, "/exec");
  return readItems(
    transport,
    { method: "POST", path, query: { stream: true }, body: request, repeatable: false, ...options },
    {
      toItem: toExecEvent,
      last: "exit",
      failure: "exec_failed",
      broken: "the stream broke before the command ended; the service has stopped the command",
    },
  );
}

function toExecEvent({ event, data }: ServerSentEvent): ExecEvent | undefined {
  if (event === "stdout" || event === "stderr") return { type: event, data: decodeBase64(data) };
  return event === "exit" ? { type: "exit", data: JSON.parse(data) as ExecExit } : undefined;
}
