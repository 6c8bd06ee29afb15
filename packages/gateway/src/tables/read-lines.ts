/** Yields the lines of a byte stream without line ends. Throws when an unfinished line exceeds `maxBytes`. */
export async function* readLines(stream: AsyncIterable<Buffer>, maxBytes: number): AsyncGenerator<string> {
  let parts: Buffer[] = [];
  let held = 0;
  for await (const chunk of stream) {
    let start = 0;
    for (let end = chunk.indexOf(10); end !== -1; end = chunk.indexOf(10, start)) {
      parts.push(chunk.subarray(start, end));
      yield Buffer.concat(parts).toString("utf8");
      parts = [];
      held = 0;
      start = end + 1;
    }
    parts.push(chunk.subarray(start));
    held += chunk.length - start;
    if (held > maxBytes) throw new Error(`a line is longer than ${maxBytes} bytes`);
  }
}
