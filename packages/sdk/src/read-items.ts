/** Streams of events that have an end of their own: without it, or after a break, they reject. */
import { type ClientErrorCode, errorFromNetwork, VivariumError } from "./errors.ts";
import { readEvents, type ServerSentEvent } from "./sse.ts";
import { type Call, send, type Transport } from "./transport.ts";

interface Format<Item> {
  /** Undefined for events of other types, which are skipped. */
  toItem: (event: ServerSentEvent) => Item | undefined;
  /** The type of the last event. */
  last: string;
  /** The code of the error that an `error` event is. */
  failure: ClientErrorCode;
  /** The message of the error for a stream that broke. */
  broken: string;
  /** Whether a broken stream may be asked for again. */
  retryable?: boolean;
}

export async function* readItems<Item>(
  transport: Transport,
  call: Omit<Call, "headers">,
  { toItem, last, failure, broken, retryable }: Format<Item>,
): AsyncGenerator<Item, void, void> {
  const response = await send(transport, { ...call, headers: { accept: "text/event-stream" } });
  const interrupted = (cause?: unknown) =>
    new VivariumError("stream_interrupted", broken, { status: 200, retryable, cause });
  try {
    for await (const event of readEvents(response.body ?? [])) {
      if (event.event === "error") throw new VivariumError(failure, event.data, { status: 200 });
      const item = toItem(event);
      if (item !== undefined) yield item;
      if (event.event === last) return;
    }
  } catch (cause) {
    call.signal?.throwIfAborted();
    throw cause instanceof VivariumError ? cause : interrupted(errorFromNetwork(cause, transport.url));
  }
  throw interrupted();
}
