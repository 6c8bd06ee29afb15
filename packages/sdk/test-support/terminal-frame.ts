/** Builds a message of the terminal protocol. */
export function frame(type: number, payload: Uint8Array | string): Buffer {
  return Buffer.concat([Uint8Array.of(type), Buffer.from(payload)]);
}
