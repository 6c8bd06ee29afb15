/** `viv audit ls`: prints entries of the audit log. */
import { parseCount, parseSince } from "../../args/values.ts";
import { renderEntry } from "../../print/audit.ts";
import { withInterrupt } from "../../service/interrupt.ts";
import { findSession } from "../../sessions/find-session.ts";
import { type Call, clientVerb, type Verb } from "../verb.ts";

interface LsOptions {
  since?: Date;
  until?: Date;
  actor?: string;
  action?: string;
  target?: string;
  session?: string;
  limit: number;
}

const LARGEST_PAGE = 200;

export function auditLsCommand(): Verb {
  return clientVerb("ls", [
    "viv audit",
    "viv audit ls --since 1d --action key.create",
    "viv audit ls --session 4x7k2m9q0a1b2c3d4e5f6 --json | jq -r .action",
  ])
    .summary("print the newest entries")
    .description("Print the newest entries of the audit log, the newest first, one a line. Kept for 90 days.")
    .option("--since <time>", "not older: 10m, 12h, 7d, or an instant", parseSince)
    .option("--until <time>", "older than this: 10m, 12h, 7d, or an instant", parseSince)
    .option("--actor <id>", "only those of a key or token, by its id, of system, or of anonymous")
    .option("--action <action>", "only these: session.destroy, key.create")
    .option("--target <id>", "only those about this id or name")
    .option("--session <session>", "only those of one session, by its id, name or the beginning of its id")
    .option("--limit <n>", "at most this many (default: 50)", parseCount, 50)
    .option("--json", "print each entry as one line of JSON")
    .does(listAudit);
}

async function listAudit(call: Call<LsOptions>): Promise<void> {
  const { paint } = call;
  const client = await call.connect();
  const { since, until, actor, action, target, session, limit } = call.options;
  const sessionId = session === undefined ? undefined : await findSession(client, session, { orEnded: true });
  const filter = { since, until, actor, action, target, sessionId, pageSize: Math.min(limit, LARGEST_PAGE) };
  await withInterrupt(async (signal) => {
    let left = limit;
    if (left === 0) return;
    for await (const entry of client.audit.list(filter, { signal })) {
      call.print(entry, () => renderEntry(entry, paint));
      left -= 1;
      if (left === 0) break;
    }
  });
}
