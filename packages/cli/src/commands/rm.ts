/** `viv rm`: ends sessions, or removes files of a session. */
import type { Client } from "@vivarium/sdk";
import { asSessionPath, parseSessionPath } from "../args/session-path.ts";
import { UsageError } from "../cli-error.ts";
import { sessionFinder } from "../sessions/find-session.ts";
import { UnknownSession } from "../sessions/unknown-session.ts";
import { doEach } from "./do-each.ts";
import { removeAll } from "./rm-all.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

interface RmOptions {
  recursive?: boolean;
  all?: boolean;
  yes?: boolean;
}

export function rmCommand(): Verb {
  return clientVerb("rm", [
    "viv rm 4x7k2m9q0a1b2c3d4e5f6",
    "viv rm web 4x7k",
    "viv rm --all",
    "viv rm 4x7k2m9q0a1b2c3d4e5f6:notes.txt",
    "viv rm -r 4x7k2m9q0a1b2c3d4e5f6:build",
  ])
    .summary("end sessions, or remove files of a session")
    .description(
      `End sessions: their machines are stopped and their disks deleted. Their checkpoints stay.
With a colon, remove files, links and empty directories of a session instead; with -r any directory.

With --all, end every session that is there, paused ones too. A list of them is shown and a question asked first;
without a terminal to ask on, --yes is needed.`,
    )
    .argument("[session|id:path...]", "sessions by id, name or beginning of the id, or paths in sessions")
    .option("-r, --recursive", "remove directories with everything below them")
    .option("--all", "end all sessions, after a question")
    .option("-y, --yes", "with --all: do not ask")
    .option("--json", 'print {"results": [{session_id or path, ok, error?, code?}, …]}')
    .does(remove);
}

async function remove(call: Call<RmOptions>, names: string[]): Promise<number> {
  const { options } = call;
  refuseUnclear(names, options);
  const areFiles = names.map((name) => asSessionPath(name) !== undefined);
  if (areFiles.includes(true) && areFiles.includes(false)) {
    throw new UsageError("sessions and files cannot be removed with one command");
  }
  if (options.recursive && areFiles.includes(false)) {
    throw new UsageError(
      "-r is for directories of a session, ID:PATH",
      "A session is ended without it, files and all.",
    );
  }
  const client = await call.connect();
  if (options.all) return await removeAll(call, client);
  return await (areFiles.includes(true) ? removeFiles : removeSessions)(call, client, names);
}

function refuseUnclear(names: string[], { all, recursive }: RmOptions): void {
  if (all && (names.length > 0 || recursive)) {
    throw new UsageError("--all ends all sessions: neither sessions, paths nor -r go with it");
  }
  if (!all && names.length === 0) {
    throw new UsageError(
      "nothing to remove was given",
      "Give sessions, ID:PATH for files of a session, or --all for all sessions. What there is: viv ls",
    );
  }
}

async function removeFiles(call: Call<RmOptions>, client: Client, names: string[]): Promise<number> {
  const find = sessionFinder(client);
  const { recursive } = call.options;
  return await doEach(call, { ids: names, key: "path" }, async (name) => {
    const { session, path } = parseSessionPath(name);
    await client.session(await find(session)).files.delete(path, { recursive });
  });
}

/** Resolves all references before the first session is ended; a session named twice is ended once. */
async function removeSessions(call: Call, client: Client, names: string[]): Promise<number> {
  const find = sessionFinder(client);
  const unknown = new Map<string, UnknownSession>();
  const ids = new Set<string>();
  for (const name of names) {
    const id = await find(name).catch((error: unknown) => {
      if (!(error instanceof UnknownSession)) throw error;
      unknown.set(name, error);
      return name;
    });
    ids.add(id);
  }
  return await doEach(call, { ids, key: "session_id" }, async (id) => {
    const error = unknown.get(id);
    if (error) throw error;
    await client.sessions.delete(id);
  });
}
