/** `viv ls`: lists sessions, or files of a session. */
import type { Client, SessionRecord } from "@vivarium/sdk";
import { Option } from "commander";
import { parseCount } from "../args/values.ts";
import { EXIT } from "../exit-codes.ts";
import { renderSessions } from "../print/session.ts";
import { listFiles } from "./ls-files.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

const LIST_STATES = ["live", "paused", "creating", "ended"] as const;

interface LsOptions {
  state?: (typeof LIST_STATES)[number];
  limit?: number;
  externalId?: string;
  long?: boolean;
}

export function lsCommand(): Verb {
  return clientVerb("ls", [
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
    .does(list);
}

async function list(call: Call<LsOptions>, where?: string): Promise<number> {
  if (where !== undefined) return await listFiles(call, where);
  const client = await call.connect();
  const { state, externalId, limit } = call.options;
  const sessions =
    state === "ended" && externalId === undefined
      ? await takeHistory(client, limit ?? 20)
      : (await client.sessions.list(call.options)).sessions;
  call.print({ sessions }, () => renderSessions(sessions, new Date(), call.paint));
  return EXIT.ok;
}

/** The newest `limit` ended sessions, read page by page. */
async function takeHistory(client: Client, limit: number): Promise<SessionRecord[]> {
  const taken: SessionRecord[] = [];
  for await (const record of client.sessions.history({ pageSize: Math.min(limit, 500) })) {
    taken.push(record);
    if (taken.length === limit) break;
  }
  return taken;
}
