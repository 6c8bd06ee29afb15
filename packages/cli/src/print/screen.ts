import type { Change } from "../watch/changes.ts";
import type { Poll } from "../watch/follow.ts";
import { renderMove } from "./change.ts";
import type { Paint } from "./paint.ts";
import { renderSessions } from "./session.ts";
import { plainText } from "./table.ts";
import { formatClock } from "./time.ts";

/** Renders one screen of `viv watch`: a status line, the sessions, and below them the newest changes. */
export function renderScreen(
  { at, sessions, failure }: Poll,
  history: readonly Change[],
  { title, paint, columns, rows }: { title: string; paint: Paint; columns: number; rows: number },
): string[] {
  const status = failure
    ? paint("red", plainText(`${failure.message}; trying again`))
    : paint(
        "dim",
        `${sessions.length} ${sessions.length === 1 ? "session" : "sessions"}, ${formatClock(at)}`,
      );
  const table = renderSessions(sessions, at, paint).split("\n");
  const changes = history.map((change) => renderMove(change, paint, at));
  const head = [`${title}  ${status}`, ""];
  // Changes get half of the remaining lines, or more where the table is short.
  const left = Math.max(rows - head.length - 2, 2);
  const changeRows = Math.min(changes.length, Math.max(left - table.length, Math.floor(left / 2)));
  const shown = cutTable(table, changes.length === 0 ? left + 2 : left - changeRows);
  const tail = changes.length === 0 ? [] : ["", paint("dim", "CHANGES"), ...changes.slice(0, changeRows)];
  return [...head, ...shown, ...tail].slice(0, rows).map((line) => cutLine(line, columns));
}

function cutTable(table: string[], left: number): string[] {
  if (table.length <= left) return table;
  const shown = table.slice(0, Math.max(left - 1, 1));
  return [...shown, `… and ${table.length - shown.length} more: viv ls`];
}

/** Cuts a line to the screen's width: a wrapped line would shift everything below. Escape sequences have no width. */
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
