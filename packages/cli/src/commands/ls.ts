import type { Client, SessionRecord } from "@vivarium/sdk";
import { type Command, Option } from "commander";
import { type ConnectionOptions, clientCommand } from "../args/shared-options.ts";
import { parseCount } from "../args/values.ts";
import { withOptions } from "../config.ts";
import { connect } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { paintFor } from "../print/paint.ts";
import { renderSessions } from "../print/session.ts";
import { listFiles } from "./ls-files.ts";

const LIST_STATES = ["live", "paused", "creating", "ended"] as const;

interface LsOptions extends ConnectionOptions {
  state?: (typeof LIST_STATES)[number];
  limit?: number;
  externalId?: string;
  long?: boolean;
}

export function lsCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("ls", [
    "viv ls",
    "viv ls --state ended --limit 100",
    "viv ls --json",
    "viv ls -l 4x7k2m9q0a1b2c3d4e5f6:src",
  ])
    .summary("list sessions, or files of a session")
    .description(
      `List sessions, newest first. With ID:PATH, list what is in that directory of a session instead, by name;
directories end in /.`,
    )
    .argument("[id:path]", "a directory in a session")
    .option("-l, --long", "files: with mode, size and time of change")
    .addOption(
      new Option("--state <state>", "only these; ended ones are kept for 30 days").choices(LIST_STATES),
    )
    .option("--limit <n>", "at most this many (default: 20)", parseCount)
    .option("--external-id <id>", "only those with this external id")
    .option("--json", 'print {"sessions": [record, …]}, or of files {"entries": [name, …]}')
    .action((where: string | undefined, options: LsOptions) =>
      run(where === undefined ? listSessions(context, options) : listFiles(context, where, options)),
    );
}

async function listSessions(context: Context, options: LsOptions): Promise<number> {
  const { config, terminal } = context;
  const client = await connect(withOptions(config, options));
  const sessions =
    options.state === "ended" && options.externalId === undefined
      ? await takeHistory(client, options.limit ?? 20)
      : (await client.sessions.list(options)).sessions;
  const text = options.json
    ? JSON.stringify({ sessions })
    : renderSessions(sessions, new Date(), paintFor(context));
  terminal.out(text);
  return EXIT.ok;
}

/** History comes in pages, so the limit may be larger than one of them. */
async function takeHistory(client: Client, limit: number): Promise<SessionRecord[]> {
  const taken: SessionRecord[] = [];
  for await (const record of client.sessions.history({ pageSize: Math.min(limit, 500) })) {
    taken.push(record);
    if (taken.length === limit) break;
  }
  return taken;
}
