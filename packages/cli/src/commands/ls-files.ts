import { absolutePath, parseSessionPath } from "../args/session-path.ts";
import type { ConnectionOptions } from "../args/shared-options.ts";
import { CliError } from "../cli-error.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { scanGuest } from "../guest/scan.ts";
import { renderEntries } from "../print/entries.ts";
import { plainText, showableLine } from "../print/table.ts";
import { findSession } from "../sessions/find-session.ts";

/** `viv ls ID:PATH` */
export async function listFiles(
  { config, terminal }: Context,
  where: string,
  options: ConnectionOptions & { long?: boolean },
): Promise<number> {
  const { session: reference, path } = parseSessionPath(where);
  const client = await connect(withOptions(config, options));
  const session = client.session(await findSession(client, reference));
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
  if (options.json) terminal.out(JSON.stringify({ entries, truncated }));
  else for (const name of entries) terminal.out(showableLine(terminal, name));
  if (truncated) terminal.note("viv: only the first 100,000 names");
  return EXIT.ok;
}
