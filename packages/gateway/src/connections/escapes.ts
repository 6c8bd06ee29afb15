/** Decodes percent escapes and JSON escapes of a byte stream, one escape at a time. Pure. */

/** Bytes of an escape so far: it is incomplete, or is not an escape after all. */
export const MORE = -1;
export const NOT_ESCAPED = -2;

/** Bytes of the longest escape. */
export const LONGEST_ESCAPE = 6;

export interface Escapes {
  /** The byte that begins an escape. */
  opener: number;
  /** The byte that these bytes stand for, or MORE, or NOT_ESCAPED. `bytes` begins with the opener. */
  decode: (bytes: readonly number[]) => number;
}

/** A byte that is in no secret. */
const OTHER = 0;

export const PERCENT: Escapes = {
  opener: 0x25,
  decode(bytes) {
    const last = hexOf(bytes.at(-1) as number);
    if (bytes.length === 1) return MORE;
    if (last === undefined) return NOT_ESCAPED;
    return bytes.length === 2 ? MORE : numberOf(bytes.slice(1));
  },
};

const SHORT: ReadonlyMap<number, number> = new Map([
  ...[...'"\\/'].map((mark): [number, number] => [mark.charCodeAt(0), mark.charCodeAt(0)]),
  ...[..."bfnrt"].map((mark): [number, number] => [mark.charCodeAt(0), OTHER]),
]);
const U = 0x75;

export const JSON_ESCAPES: Escapes = {
  opener: 0x5c,
  decode(bytes) {
    if (bytes.length === 1) return MORE;
    if (bytes[1] !== U) return SHORT.get(bytes[1] as number) ?? NOT_ESCAPED;
    if (bytes.length === 2) return MORE;
    if (hexOf(bytes.at(-1) as number) === undefined) return NOT_ESCAPED;
    if (bytes.length < 6) return MORE;
    const code = numberOf(bytes.slice(2));
    return code > 0xff ? OTHER : code;
  },
};

function numberOf(digits: readonly number[]): number {
  return digits.reduce((sum, digit) => sum * 16 + (hexOf(digit) ?? 0), 0);
}

function hexOf(byte: number): number | undefined {
  const digit = Number.parseInt(String.fromCharCode(byte), 16);
  return Number.isNaN(digit) ? undefined : digit;
}
