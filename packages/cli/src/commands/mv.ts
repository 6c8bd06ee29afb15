/** `viv mv`: moves or renames files of a session. */
import { absolutePath, parseSessionPath } from "../args/session-path.ts";
import { UsageError } from "../cli-error.ts";
import { destinationOf } from "../copy/destination.ts";
import { toServicePath } from "../guest/names.ts";
import { scanGuest } from "../guest/scan.ts";
import { sessionFinder } from "../sessions/find-session.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

export function mvCommand(): Verb {
  return clientVerb("mv", ["viv mv 4x7k2m9q0a1b2c3d4e5f6:draft.md 4x7k2m9q0a1b2c3d4e5f6:final/report.md"])
    .summary("move or rename files of a session")
    .description(
      `Move a file or directory within one session: into a directory that is there, else under the new name itself.
Parents are made; a file of that name is replaced.`,
    )
    .argument("<source>", "ID:PATH")
    .argument("<destination>", "ID:PATH of the same session")
    .does(moveFile);
}

async function moveFile(call: Call, source: string, destination: string): Promise<void> {
  const [from, to] = [parseSessionPath(source), parseSessionPath(destination)];
  const client = await call.connect();
  const find = sessionFinder(client);
  const id = await find(from.session);
  if (id !== (await find(to.session))) {
    throw new UsageError("mv stays within one session", "From one session to another: viv cp, then viv rm");
  }
  const session = client.session(id);
  const place = {
    scan: (path: string, how = {}) => scanGuest(session, path, how),
    nameOf: (path: string) => `${session.id}:${path}`,
  };
  const target = await destinationOf(place, { from: absolutePath(from.path), to: absolutePath(to.path) });
  await session.files.rename(toServicePath(from.path), toServicePath(target));
}
