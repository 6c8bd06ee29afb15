/** A minimum rate of answers: a server that sends byte by byte would keep a pull for as long as it likes. */
import type { PullLimits } from "./limits.ts";
import { RegistryError } from "./registry-error.ts";

/** The chunks of a stream. Only time in which the reader waits counts against the sender. */
export async function* pacedChunks(
  chunks: AsyncIterable<Uint8Array>,
  { windowMs, minBytes }: Pick<PullLimits, "windowMs" | "minBytes">,
): AsyncGenerator<Uint8Array, void> {
  let waitedMs = 0;
  let bytes = 0;
  let askedAt = performance.now();
  for await (const chunk of chunks) {
    waitedMs += performance.now() - askedAt;
    bytes += chunk.byteLength;
    if (bytes >= minBytes) waitedMs = bytes = 0;
    if (waitedMs >= windowMs)
      throw new RegistryError(
        "timed_out",
        `the answer arrives too slowly: ${bytes} bytes in ${Math.round(waitedMs)} ms`,
        {
          isTransient: true,
        },
      );
    yield chunk;
    askedAt = performance.now();
  }
}
