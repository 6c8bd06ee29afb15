/** Reads the events of a `text/event-stream`. */
import { readLines } from "./read-lines.ts";

export interface ServerSentEvent {
  event: string;
  data: string;
}

/**
 * Yields the events of a byte stream. Comments and unknown fields are skipped. `onId` is called with each id, also with
 * the id of a block without data, which is not an event.
 */
export async function* readEvents(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  onId?: (id: string) => void,
): AsyncGenerator<ServerSentEvent> {
  let event = "message";
  let data: string[] = [];
  let id: string | undefined;
  for await (const ended of readLines(body)) {
    const line = ended.endsWith("\r") ? ended.slice(0, -1) : ended;
    if (line === "") {
      // Called before the event is yielded: a caller that leaves the loop at this event has received it.
      if (id !== undefined) onId?.(id);
      if (data.length > 0) yield { event, data: data.join("\n") };
      event = "message";
      data = [];
      id = undefined;
      continue;
    }
    const { field, value } = splitField(line);
    if (field === "event") event = value;
    if (field === "data") data.push(value);
    if (field === "id") id = value;
  }
}

function splitField(line: string): { field: string; value: string } {
  const colon = line.indexOf(":");
  if (colon === -1) return { field: line, value: "" };
  const value = line.slice(colon + 1);
  return { field: line.slice(0, colon), value: value.startsWith(" ") ? value.slice(1) : value };
}
