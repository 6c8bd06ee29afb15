const NEWLINE = 10;

/**
 * The lines of a byte stream as text, without their ends; an unfinished last line is dropped. A line of more than
 * `maxBytes` is refused.
 */
export async function* readLines(
  body: AsyncIterable<Uint8Array> | Iterable<Uint8Array>,
  limit?: { maxBytes: number; tooLong: () => Error },
): AsyncGenerator<string, void, void> {
  const decoder = new TextDecoder();
  let parts: string[] = [];
  let bytes = 0;
  for await (const chunk of body) {
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      parts.push(decoder.decode(chunk.subarray(start, end + 1), { stream: true }));
      yield parts.join("").slice(0, -1);
      parts = [];
      bytes = 0;
      start = end + 1;
    }
    parts.push(decoder.decode(chunk.subarray(start), { stream: true }));
    bytes += chunk.byteLength - start;
    if (limit && bytes > limit.maxBytes) throw limit.tooLong();
  }
}
