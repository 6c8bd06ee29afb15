/** `viv cat`: writes files of a session to standard output. */
import { parseSessionPath } from "../args/session-path.ts";
import { withInterrupt } from "../service/interrupt.ts";
import { sessionFinder } from "../sessions/find-session.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

export function catCommand(): Verb {
  return clientVerb("cat", [
    "viv cat 4x7k2m9q0a1b2c3d4e5f6:notes.txt",
    "viv cat 4x7k2m9q0a1b2c3d4e5f6:out.tar | tar -t",
  ])
    .summary("print files of a session")
    .description("Print files of any size, byte by byte as they are, one after the other.")
    .argument("<id:path...>", "files to print")
    .does(printFiles);
}

async function printFiles(call: Call, names: string[]): Promise<void> {
  const paths = names.map(parseSessionPath);
  const client = await call.connect();
  const find = sessionFinder(client);
  await withInterrupt(async (signal) => {
    for (const { session, path } of paths) {
      const content = client.session(await find(session)).files.readStream(path, { signal });
      for await (const chunk of content) await call.terminal.write("stdout", chunk);
    }
  });
}
