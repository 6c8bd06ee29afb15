/** Tracks the terminal modes that a program sets (alternate screen, cursor, mouse reports), to undo them later. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what this is about
const SET_OR_RESET = /\u001b\[\?([\d;]+)([hl])/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what this is about
const KEYPAD = /\u001b([=>])/g;
/** An escape sequence that is incomplete at the end of a chunk; real sequences are not longer. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: escape sequences are what this is about
const UNFINISHED = /\u001b(?:\[(?:\?[\d;]{0,32})?)?$/;
/** Modes that would leave the terminal unusable, by their normal state: set or reset. */
const NORMALLY_SET = ["7", "25"];
const NORMALLY_RESET = "1 47 1000 1002 1003 1004 1005 1006 1015 1047 1049 2004 2026".split(" ");
const NORMAL: ReadonlyMap<string, string> = new Map([
  ...NORMALLY_SET.map((mode): [string, string] => [mode, "h"]),
  ...NORMALLY_RESET.map((mode): [string, string] => [mode, "l"]),
]);

export class ScreenModes {
  readonly #changed = new Set<string>();
  #isKeypadChanged = false;
  #rest = "";

  /** Tracks the modes in output of the program. */
  watch(chunk: Uint8Array): void {
    const text =
      this.#rest + Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).toString("latin1");
    for (const [, modes = "", state] of text.matchAll(SET_OR_RESET)) {
      for (const mode of modes.split(";")) {
        if (!NORMAL.has(mode)) continue;
        if (NORMAL.get(mode) === state) this.#changed.delete(mode);
        else this.#changed.add(mode);
      }
    }
    for (const [, state] of text.matchAll(KEYPAD)) this.#isKeypadChanged = state === "=";
    this.#rest = UNFINISHED.exec(text)?.[0] ?? "";
  }

  /** Whether the program is on the alternate screen. */
  get isFullScreen(): boolean {
    return ["47", "1047", "1049"].some((mode) => this.#changed.has(mode));
  }

  /** Escape sequences that restore the normal modes. */
  undo(): string {
    const modes = [...this.#changed].map((mode) => `\u001b[?${mode}${NORMAL.get(mode)}`).join("");
    const keys = this.#isKeypadChanged ? "\u001b>" : "";
    // A full-screen program may also have set modifyOtherKeys.
    return `${this.isFullScreen ? "\u001b[>4m" : ""}${modes}${keys}\u001b[0m`;
  }
}
