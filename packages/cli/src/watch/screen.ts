/** Draws the live table of `viv watch` after every poll, on the alternate screen, which leaves the scrollback alone. */
import { renderMove } from "../print/change.ts";
import type { Paint } from "../print/paint.ts";
import { renderScreen } from "../print/screen.ts";
import type { Terminal } from "../terminal.ts";
import type { Change } from "./changes.ts";
import type { Poll } from "./follow.ts";

const ENTER = "\u001b[?1049h\u001b[?25l";
const LEAVE = "\u001b[?25h\u001b[?1049l";
const HOME = "\u001b[H";
const CLEAR_TO_LINE_END = "\u001b[K";
const CLEAR_BELOW = "\u001b[J";
/** Most changes kept; more do not fit on a screen. */
const REMEMBERED = 200;

export async function drawScreen(
  { terminal, paint }: { terminal: Terminal; paint: Paint },
  polls: AsyncIterable<Poll>,
  title: string,
): Promise<void> {
  const write = (text: string) => terminal.write("stdout", Buffer.from(text));
  const history: Change[] = [];
  await write(ENTER);
  try {
    for await (const poll of polls) {
      history.unshift(...poll.changes.toReversed());
      history.length = Math.min(history.length, REMEMBERED);
      const lines = renderScreen(poll, history, { title, paint, ...terminal.size() });
      await write(`${HOME}${lines.map((line) => `${line}${CLEAR_TO_LINE_END}`).join("\r\n")}${CLEAR_BELOW}`);
    }
  } finally {
    await write(LEAVE);
  }
  // The alternate screen is gone, so the changes are printed to stay readable.
  for (const change of history.toReversed()) terminal.out(renderMove(change, paint));
}
