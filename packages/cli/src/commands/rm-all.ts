import { LIMITS } from "@vivarium/contract/api/limits";
import type { Client, SessionRecord } from "@vivarium/sdk";
import { UsageError } from "../cli-error.ts";
import { EXIT } from "../exit-codes.ts";
import { renderSessions } from "../print/session.ts";
import { endListed } from "../sessions/end-session.ts";
import { doEach } from "./do-each.ts";
import type { Call } from "./verb.ts";

/** `viv rm --all`: lists the present sessions, asks for confirmation, and ends them. */
export async function removeAll(call: Call<{ yes?: boolean }>, client: Client): Promise<number> {
  const { terminal, options } = call;
  if (!options.yes && !terminal.canAsk) {
    throw new UsageError(
      "rm --all asks before it ends sessions, and nobody can answer here",
      "Without a question: viv rm --all --yes; which sessions there are: viv ls",
    );
  }
  const { sessions } = await listAll(client);
  if (sessions.length === 0 && !options.json) terminal.note("viv: there are no sessions");
  if (sessions.length > 0 && !options.yes && !(await isAgreed(call, sessions))) {
    terminal.note("viv: nothing was ended");
    return EXIT.failed;
  }
  return await doEach(call, { ids: idsOf(client, sessions), key: "session_id" }, (id) =>
    endListed(client, id),
  );
}

async function isAgreed({ terminal, paint }: Call, sessions: SessionRecord[]): Promise<boolean> {
  const count = sessions.length === 1 ? "this session" : `these ${sessions.length} sessions`;
  const older = sessions.length < LIMITS.listMax ? "" : ", the newest, and all older ones";
  terminal.note(renderSessions(sessions, new Date(), paint));
  const answer = await terminal.ask(`End ${count}${older}? What is on their disks is deleted. [y/N] `);
  return /^\s*y(es)?\s*$/i.test(answer);
}

/** Ids of all sessions, list by list while a list is full; sessions created after the first list are left out. */
async function* idsOf(client: Client, first: SessionRecord[]): AsyncGenerator<string> {
  const newest = Math.max(...first.map(({ created_at }) => Date.parse(created_at)));
  const tried = new Set<string>();
  let sessions = first;
  for (;;) {
    const next = sessions.filter(
      ({ session_id, created_at }) => !tried.has(session_id) && Date.parse(created_at) <= newest,
    );
    for (const { session_id } of next) {
      tried.add(session_id);
      yield session_id;
    }
    if (next.length === 0 || sessions.length < LIMITS.listMax) return;
    sessions = (await listAll(client)).sessions;
  }
}

function listAll(client: Client) {
  return client.sessions.list({ limit: LIMITS.listMax });
}
