/**
 * What terminals answer when programs ask them: their kind, their colours, where the cursor is. A shell that is come back
 * to shows its latest output again, with the questions in it, which nobody waits for any more: the answers would be
 * typed into the shell.
 */
const ESCAPE = "\u001b";
const ANSWERS = new RegExp(
  [
    String.raw`\[[?>]?[\d;]*[cRn]`,
    String.raw`\[\?[\d;]*\$y`,
    String.raw`\][\d;]+[^\x07${ESCAPE}]*(?:\x07|${ESCAPE}\\)`,
    String.raw`P[^${ESCAPE}]*${ESCAPE}\\`,
  ]
    .map((each) => `${ESCAPE}${each}`)
    .join("|"),
  "g",
);

/** Without the answers in it. */
export function withoutAnswers(typed: Buffer): Buffer {
  return Buffer.from(typed.toString("latin1").replaceAll(ANSWERS, ""), "latin1");
}
