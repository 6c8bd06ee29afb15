import { InvalidArgumentError, Option } from "commander";

/** The key that leaves a terminal while its program keeps running. */
export interface DetachKey {
  /** Name shown to the human: `Ctrl-]`. */
  name: string;
  /** Byte sequences of the key: one byte, or an escape sequence where a program has changed the keyboard mode. */
  sequences: readonly string[];
}

const CONTROL = /^(?:ctrl-|c-|\^)([a-z@[\\\]^_])$/i;
const DEFAULT_DETACH_KEY = "ctrl-]";

/** Parses `ctrl-]`, `^]` or `c-a`; `none` for no key at all. */
export function parseDetachKey(text: string): DetachKey {
  if (text === "none") return { name: "none", sequences: [] };
  const letter = CONTROL.exec(text)?.[1]?.toLowerCase();
  if (letter === undefined)
    throw new InvalidArgumentError("Expected a key such as ctrl-], ctrl-a or ^q, or none.");
  const byte = letter.toUpperCase().charCodeAt(0) & 0x1f;
  const code = letter.charCodeAt(0);
  return {
    name: `Ctrl-${letter.toUpperCase()}`,
    // xterm's modifyOtherKeys, and the kitty keyboard protocol; 5 means Ctrl.
    sequences: [String.fromCharCode(byte), `\u001b[27;5;${code}~`, `\u001b[${code};5u`],
  };
}

/** The input before the key; undefined if the input does not contain it. */
export function beforeDetach(key: DetachKey, typed: Buffer): Buffer | undefined {
  const at = key.sequences.map((each) => typed.indexOf(each, 0, "latin1")).filter((i) => i >= 0);
  return at.length === 0 ? undefined : typed.subarray(0, Math.min(...at));
}

export function detachKeyOption(): Option {
  return new Option("--detach-key <key>", "leave with this key, such as ctrl-a, or none")
    .argParser(parseDetachKey)
    .default(parseDetachKey(DEFAULT_DETACH_KEY), DEFAULT_DETACH_KEY);
}
