import { InvalidArgumentError, Option } from "commander";

/** The key that leaves a shell and lets it run on. */
export interface DetachKey {
  /** As shown to the human: `Ctrl-]`. */
  name: string;
  /** The bytes of the key: one byte, or an escape sequence where a program has asked for those. */
  sequences: readonly string[];
}

const CONTROL = /^(?:ctrl-|c-|\^)([a-z@[\\\]^_])$/i;
const DEFAULT_DETACH_KEY = "ctrl-]";

/** `ctrl-]`, `^]`, `c-a`; `none` for no key at all. */
export function parseDetachKey(text: string): DetachKey {
  if (text === "none") return { name: "none", sequences: [] };
  const letter = CONTROL.exec(text)?.[1]?.toLowerCase();
  if (letter === undefined)
    throw new InvalidArgumentError("Expected a key such as ctrl-], ctrl-a or ^q, or none.");
  const byte = letter.toUpperCase().charCodeAt(0) & 0x1f;
  const code = letter.charCodeAt(0);
  return {
    name: `Ctrl-${letter.toUpperCase()}`,
    // The forms of modifyOtherKeys and of the keyboard protocol of newer terminals: 5 is Ctrl.
    sequences: [String.fromCharCode(byte), `\u001b[27;5;${code}~`, `\u001b[${code};5u`],
  };
}

/** The input before the key, if the input contains the key. */
export function beforeDetach(key: DetachKey, typed: Buffer): Buffer | undefined {
  const at = key.sequences.map((each) => typed.indexOf(each, 0, "latin1")).filter((i) => i >= 0);
  return at.length === 0 ? undefined : typed.subarray(0, Math.min(...at));
}

export function detachKeyOption(): Option {
  return new Option("--detach-key <key>", "leave with this key, such as ctrl-a, or none")
    .argParser(parseDetachKey)
    .default(parseDetachKey(DEFAULT_DETACH_KEY), DEFAULT_DETACH_KEY);
}
