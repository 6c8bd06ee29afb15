/** All bytes of a stream; `undefined` when there are more than `limitBytes`: the rest is then left unread. */
export async function readAtMost(
  stream: AsyncIterable<Uint8Array>,
  limitBytes: number,
): Promise<Buffer | undefined> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of stream) {
    size += chunk.byteLength;
    if (size > limitBytes) return undefined;
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
