/**
 * Removes from typed input a terminal's answers to queries of programs: its type, colours, cursor position.
 *
 * Hazard: after a reconnect a shell's latest output is shown again, with old queries in it. No program waits for these
 * answers any more, so they would appear as typed text in the shell.
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

export function withoutAnswers(typed: Buffer): Buffer {
  return Buffer.from(typed.toString("latin1").replaceAll(ANSWERS, ""), "latin1");
}
