import type { RunRequest, RunResult } from "@vivarium/contract/api";
import { type CallOptions, sendJson, type Transport } from "./transport.ts";

/** Runs code in a session of its own, which ends with the code. Never sent twice: the code may have effects outside. */
export function runCode(
  transport: Transport,
  request: RunRequest,
  options: CallOptions = {},
): Promise<RunResult> {
  return sendJson(transport, {
    method: "POST",
    path: "/v1/sessions/exec",
    body: request,
    repeatable: false,
    ...options,
  });
}
