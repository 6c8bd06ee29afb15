/** The live table: drawn again at every look on a screen of its own, which leaves the human's scrollback alone. */
import { type Paint, paintState } from "../print/paint.ts";
import { renderSessions } from "../print/session.ts";
import { plainText } from "../print/table.ts";
import { formatAge } from "../print/time.ts";
import type { Terminal } from "../terminal.ts";
import type { Change } from "./changes.ts";
import type { Look } from "./follow.ts";

const ENTER = "\u001b[?1049h\u001b[?25l";
const LEAVE = "\u001b[?25h\u001b[?1049l";
const HOME = "\u001b[H";
const CLEAR_TO_LINE_END = "\u001b[K";
const CLEAR_BELOW = "\u001b[J";
/** Changes that are kept; more do not fit on a screen. */
const REMEMBERED = 200;

export async function drawScreen(
  { terminal, paint }: { terminal: Terminal; paint: Paint },
  looks: AsyncIterable<Look>,
  title: string,
): Promise<void> {
  const write = (text: string) => terminal.write("stdout", Buffer.from(text));
  const history: Change[] = [];
  await write(ENTER);
  try {
    for await (const look of looks) {
      history.unshift(...look.changes.toReversed());
      history.length = Math.min(history.length, REMEMBERED);
      const lines = renderScreen(look, history, { title, paint, ...terminal.size() });
      await write(`${HOME}${lines.map((line) => `${line}${CLEAR_TO_LINE_END}`).join("\r\n")}${CLEAR_BELOW}`);
    }
  } finally {
    await write(LEAVE);
  }
  // The screen is gone; what has happened stays readable.
  for (const change of history.toReversed()) terminal.out(renderMove(change, paint));
}

/** One screenful: a line about the service, the sessions, and below them the newest changes. */
export function renderScreen(
  { at, sessions, failure }: Look,
  history: readonly Change[],
  { title, paint, columns, rows }: { title: string; paint: Paint; columns: number; rows: number },
): string[] {
  const status = failure
    ? paint("red", plainText(`${failure.message}; trying again`))
    : paint("dim", `${sessions.length} ${sessions.length === 1 ? "session" : "sessions"}, ${clock(at)}`);
  const table = renderSessions(sessions, at, paint).split("\n");
  const changes = history.map((change) => renderMove(change, paint, at));
  const head = [`${title}  ${status}`, ""];
  // Half of what is left belongs to the changes, more where the table needs less.
  const room = Math.max(rows - head.length - 2, 2);
  const changeRows = Math.min(changes.length, Math.max(room - table.length, Math.floor(room / 2)));
  const shown = cutTable(table, changes.length === 0 ? room + 2 : room - changeRows);
  const tail = changes.length === 0 ? [] : ["", paint("dim", "CHANGES"), ...changes.slice(0, changeRows)];
  return [...head, ...shown, ...tail].slice(0, rows).map((line) => cutLine(line, columns));
}

function cutTable(table: string[], room: number): string[] {
  if (table.length <= room) return table;
  const shown = table.slice(0, Math.max(room - 1, 1));
  return [...shown, `… and ${table.length - shown.length} more: viv ls`];
}

/** `10:00:00  <id>  live → paused  name  (detail)`, at the human's own clock. */
function renderMove(change: Change, paint: Paint, now?: Date): string {
  const { session_id, from, to, name, detail } = change;
  const at = new Date(change.at);
  const ago = now && `${formatAge(now.getTime() - at.getTime())} ago`.padStart(8);
  const move = [from, to].filter((state) => state !== undefined);
  const states = move.map((state) => paintState(paint, state)).join(paint("dim", " → "));
  const rest = [name, detail && `(${detail})`].filter((text) => text !== undefined).map(plainText);
  return [paint("dim", clock(at)), ago, plainText(session_id), states, ...rest]
    .filter((text) => text !== undefined)
    .join("  ");
}

function clock(at: Date): string {
  const two = (n: number) => String(n).padStart(2, "0");
  return `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
}

/** A line longer than the screen would wrap and shift everything below. Escapes take no room. */
function cutLine(line: string, columns: number): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the escapes that colours are made of
  const pieces = line.split(/(\u001b\[[0-9;]*m)/);
  let left = columns;
  return pieces
    .map((piece) => {
      if (piece.startsWith("\u001b")) return piece;
      const shown = piece.slice(0, left);
      left -= shown.length;
      return shown;
    })
    .join("");
}
