/** Random identifiers. */
import { randomInt } from "node:crypto";

/** Returns `length` characters of the alphabet from the system's random source, without modulo bias. */
export function randomText(alphabet: string, length: number): string {
  return Array.from({ length }, () => alphabet[randomInt(alphabet.length)]).join("");
}

export function randomId(length = 21): string {
  return randomText("abcdefghijklmnopqrstuvwxyz0123456789", length);
}
