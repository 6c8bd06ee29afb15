/** Reads streams whose last event marks their end. A stream that ends without that event, or breaks, throws. */
import { type ClientErrorCode, errorFromNetwork, VivariumError } from "./errors.ts";
import { readEvents, type ServerSentEvent } from "./sse.ts";
import { type Call, send, type Transport } from "./transport.ts";

interface Format<Item> {
  /** Converts an event; undefined skips it. */
  toItem: (event: ServerSentEvent) => Item | undefined;
  /** The type of the event that ends the stream. */
  last: string;
  /** The error code for an `error` event. */
  failure: ClientErrorCode;
  /** The error message for a stream that broke. */
  broken: string;
  /** Whether a broken stream may be requested again. */
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
