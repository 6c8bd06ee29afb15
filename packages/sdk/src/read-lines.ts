const NEWLINE = 10;

/**
 * Yields the lines of a byte stream as text without line ends. An unfinished last line is dropped. Throws when an
 * unfinished line exceeds `maxBytes`.
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
