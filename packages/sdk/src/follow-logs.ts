import { decodeBase64 } from "./base64.ts";
import { errorFromNetwork, VivariumError } from "./errors.ts";
import { readEvents } from "./sse.ts";
import { type CallOptions, send, type Transport } from "./transport.ts";

/** A piece of a process's output; it may begin or end inside a character. */
export interface LogChunk {
  stream: "stdout" | "stderr";
  data: Uint8Array;
}

export async function* followLogs(
  transport: Transport,
  path: string,
  options: CallOptions,
): AsyncGenerator<LogChunk, void, void> {
  const response = await send(transport, {
    method: "GET",
    path,
    query: { follow: true },
    headers: { accept: "text/event-stream" },
    repeatable: true,
    ...options,
  });
  try {
    for await (const { event, data } of readEvents(response.body ?? [])) {
      if (event === "stdout" || event === "stderr") yield { stream: event, data: decodeBase64(data) };
      if (event === "error") throw new VivariumError("log_failed", data, { status: 200 });
      if (event === "eof") return;
    }
  } catch (cause) {
    options.signal?.throwIfAborted();
    throw cause instanceof VivariumError ? cause : interrupted(errorFromNetwork(cause, transport.url));
  }
  throw interrupted();
}

function interrupted(cause?: unknown): VivariumError {
  const message = "the log broke off before its end; the process goes on, follow it again";
  return new VivariumError("stream_interrupted", message, { status: 200, retryable: true, cause });
}
