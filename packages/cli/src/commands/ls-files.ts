import { absolutePath, parseSessionPath } from "../args/session-path.ts";
import { CliError } from "../cli-error.ts";
import { EXIT } from "../exit-codes.ts";
import { scanGuest } from "../guest/scan.ts";
import { renderEntries } from "../print/entries.ts";
import { plainText, showableLine } from "../print/table.ts";
import type { Call } from "./verb.ts";

/** `viv ls ID:PATH`: lists files of a session. */
export async function listFiles(call: Call<{ long?: boolean }>, where: string): Promise<number> {
  const { terminal, options } = call;
  const { session: reference, path } = parseSessionPath(where);
  const { session } = await call.find(reference);
  if (options.long) {
    const tree = await scanGuest(session, absolutePath(path), { depth: 1 });
    if (tree === undefined) throw new CliError(`${where}: no such file or directory`);
    if (options.json) {
      const entries = [...tree].filter(([name]) => name !== "" || tree.size === 1);
      terminal.out(JSON.stringify({ entries: entries.map(([name, entry]) => ({ name, ...entry })) }));
    } else if (tree.size > 0) terminal.out(renderEntries(tree, path));
    const unread = tree.get("")?.unread;
    if (unread !== undefined) terminal.note(`viv: ${where} was not read whole: ${plainText(unread)}`);
    return unread === undefined ? EXIT.ok : EXIT.failed;
  }
  const { entries, truncated } = await session.files.list(path);
  call.printLines(
    { entries, truncated },
    entries.map((name) => showableLine(terminal, name)),
  );
  if (truncated) terminal.note("viv: only the first 100,000 names");
  return EXIT.ok;
}
