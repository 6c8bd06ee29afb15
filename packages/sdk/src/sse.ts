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
  for await (const line of readLines(body)) {
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

/** Whole lines only: an unfinished line of a broken stream is dropped, as the format demands. */
async function* readLines(body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const chunk of body) {
    const text = rest + decoder.decode(chunk, { stream: true });
    let start = 0;
    for (let end = text.indexOf("\n"); end !== -1; end = text.indexOf("\n", start)) {
      yield text.slice(start, text[end - 1] === "\r" && end > start ? end - 1 : end);
      start = end + 1;
    }
    rest = text.slice(start);
  }
}

function splitField(line: string): { field: string; value: string } {
  const colon = line.indexOf(":");
  if (colon === -1) return { field: line, value: "" };
  const value = line.slice(colon + 1);
  return { field: line.slice(0, colon), value: value.startsWith(" ") ? value.slice(1) : value };
}
