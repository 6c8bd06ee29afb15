/** Encodes and decodes base64 in Node and in browsers. */

/** Uses `Buffer` in Node, which is an order of magnitude faster than `atob`; browsers have only `atob`. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  if (typeof Buffer !== "undefined") return Buffer.from(text, "base64");
  return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}

export function encodeBase64(bytes: Uint8Array): string {
  if (typeof Buffer !== "undefined") {
    return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64");
  }
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}
