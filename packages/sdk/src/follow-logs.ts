import { decodeBase64 } from "./base64.ts";
import { readItems } from "./read-items.ts";
import type { CallOptions, Transport } from "./transport.ts";

/** A piece of a process's output; it may begin or end inside a character. */
export interface LogChunk {
  stream: "stdout" | "stderr";
  data: Uint8Array;
}

export function followLogs(
  transport: Transport,
  path: string,
  options: CallOptions,
): AsyncGenerator<LogChunk, void, void> {
  return readItems<LogChunk>(
    transport,
    { method: "GET", path, query: { follow: true }, repeatable: true, ...options },
    {
      toItem: ({ event, data }) =>
        event === "stdout" || event === "stderr" ? { stream: event, data: decodeBase64(data) } : undefined,
      last: "eof",
      failure: "log_failed",
      broken: "the log broke off before its end; the process goes on, follow it again",
      retryable: true,
    },
  );
}
