import type { Readable, Writable } from "node:stream";

/**
 * Moves a body on as fast as it is taken, everything that lies ready in one piece. A plain pipe keeps the pieces apart,
 * and limits their bytes but not their number: a body of one-byte chunks would cost a thousand times its size.
 */
export function pour(from: Readable, to: Writable): void {
  const move = () => {
    while (!to.writableNeedDrain && !to.destroyed) {
      const bytes: unknown = from.read();
      if (bytes === null) return;
      to.write(bytes);
    }
  };
  from.on("readable", move);
  to.on("drain", move);
  from.once("end", () => to.end());
}
