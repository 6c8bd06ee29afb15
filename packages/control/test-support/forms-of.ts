/** Finds a value in text in the forms in which it could leak: as it is, in hexadecimal, and in base64. */

/** The value, and what a search finds wherever its bytes stand among others. */
function formsOf(value: string): string[] {
  const hex = Buffer.from(value).toString("hex");
  return [value, hex, hex.toUpperCase(), ...base64FormsOf(Buffer.from(value))];
}

/** In base64 a byte looks different at each of three offsets. The characters that depend on other bytes are left out. */
function base64FormsOf(bytes: Buffer): string[] {
  return [0, 1, 2].flatMap((offset) => {
    const shifted = Buffer.concat([Buffer.alloc(offset), bytes]);
    const [from, to] = [Math.ceil((offset * 8) / 6), Math.floor((shifted.length * 8) / 6)];
    return (["base64", "base64url"] as const).map((encoding) => shifted.toString(encoding).slice(from, to));
  });
}

export function holds(text: string, value: string): boolean {
  return formsOf(value).some((form) => text.includes(form));
}
