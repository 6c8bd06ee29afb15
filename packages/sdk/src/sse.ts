import { readLines } from "./read-lines.ts";

/** One event of a `text/event-stream`. */
export interface ServerSentEvent {
  event: string;
  data: string;
}

/**
 * Events of a byte stream, however its chunks are cut. Comments and unknown fields are skipped. `isAt` is called with
 * the id of each block that has one, also of a block without data, which is not an event.
 */
export async function* readEvents(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  isAt?: (id: string) => void,
): AsyncGenerator<ServerSentEvent> {
  let event = "message";
  let data: string[] = [];
  let id: string | undefined;
  for await (const ended of readLines(body)) {
    const line = ended.endsWith("\r") ? ended.slice(0, -1) : ended;
    if (line === "") {
      // Called before the event is yielded: a caller that leaves the loop over it has received it.
      if (id !== undefined) isAt?.(id);
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
