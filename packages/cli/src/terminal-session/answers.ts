/**
 * Answers that terminals send when programs ask them: their kind, their colours, the position of the cursor.
 *
 * Hazard: after a reconnect a shell shows its latest output again, with the old questions in it. Nothing waits for the
 * answers any more, so they would be typed into the shell.
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

/** The input without such answers. */
export function withoutAnswers(typed: Buffer): Buffer {
  return Buffer.from(typed.toString("latin1").replaceAll(ANSWERS, ""), "latin1");
}
