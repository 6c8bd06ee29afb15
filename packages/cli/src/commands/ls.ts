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

const LIST_STATES = ["live", "paused", "creating", "ended"] as const;

interface LsOptions extends ConnectionOptions {
  state?: (typeof LIST_STATES)[number];
  limit?: number;
  externalId?: string;
}

export function lsCommand(run: (code: Promise<number>) => Promise<void>, context: Context): Command {
  return clientCommand("ls", ["viv ls", "viv ls --state ended --limit 100", "viv ls --json"])
    .summary("list sessions")
    .description("List sessions, newest first.")
    .addOption(
      new Option("--state <state>", "only these; ended ones are kept for 30 days").choices(LIST_STATES),
    )
    .option("--limit <n>", "at most this many (default: 20)", parseCount)
    .option("--external-id <id>", "only those with this external id")
    .option("--json", 'print {"sessions": [record, …]}')
    .action((options: LsOptions) => run(listSessions(context, options)));
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
