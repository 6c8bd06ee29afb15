/**
 * What terminals answer when programs ask them: their kind, their colours, where the cursor is. A shell that is come back
 * to shows its latest output again, with the questions in it, which nobody waits for any more: the answers would be
 * typed into the shell.
 */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are what terminals send
const ANSWERS =
  /\u001b(?:\[[?>]?[\d;]*[cRn]|\[\?[\d;]*\$y|\][\d;]+[^\u0007\u001b]*(?:\u0007|\u001b\\)|P[^\u001b]*\u001b\\)/g;

/** Without the answers in it. */
export function withoutAnswers(typed: Buffer): Buffer {
  return Buffer.from(typed.toString("latin1").replaceAll(ANSWERS, ""), "latin1");
}
