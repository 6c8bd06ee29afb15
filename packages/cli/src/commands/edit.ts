/** `viv edit`: opens a file of a session in the human's own editor and writes it back. */
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import type { Session } from "@vivarium/sdk";
import { absolutePath, parseSessionPath } from "../args/session-path.ts";
import { CliError } from "../cli-error.ts";
import { baseName } from "../copy/entry.ts";
import { sessionPlace } from "../copy/session-place.ts";
import { scanGuest } from "../guest/scan.ts";
import { runForeground } from "../service/foreground.ts";
import { type Call, clientVerb, type Verb } from "./verb.ts";

export function editCommand(): Verb {
  return clientVerb("edit", [
    "viv edit 4x7k2m9q0a1b2c3d4e5f6:src/main.py",
    "EDITOR='code --wait' viv edit 4x7k2m9q0a1b2c3d4e5f6:notes.md",
  ])
    .summary("edit a file of a session with your own editor")
    .description(
      `Fetch a file, open it with $VISUAL or $EDITOR (vi where neither is set), and put it back when it was changed. One
that does not exist is made. If it was changed in the session meanwhile, nothing there is overwritten and your text is
kept here.`,
    )
    .argument("<id:path>", "file to edit")
    .does(editFile);
}

async function editFile(call: Call, name: string): Promise<void> {
  const { config, terminal } = call;
  const { session: reference, path: file } = parseSessionPath(name);
  const { session } = await call.find(reference);
  const before = await readIfAny(session, file);
  const directory = await mkdtemp(path.join(tmpdir(), "viv-edit-"));
  const copy = path.join(directory, baseName(file) ?? "file");
  await writeFile(copy, before ?? "", { mode: 0o600 });
  let isSafe = false;
  try {
    const code = await runForeground(["sh", "-c", `${config.editor} "$1"`, "sh", copy], {
      missing: "Set VISUAL or EDITOR to an editor of this machine.",
    });
    if (code !== 0)
      throw new CliError(`the editor (${config.editor}) exited with ${code}: ${name} stays as it was`);
    const after = await readFile(copy);
    const isChanged = !isSame(after, before ?? Buffer.alloc(0));
    if (isChanged) await putBack(session, { file, name }, before, after);
    isSafe = true;
    if (isChanged) terminal.out(name);
    else terminal.note(`viv: ${name} was not changed`);
  } finally {
    if (isSafe) await rm(directory, { recursive: true, force: true });
    else terminal.note(`viv: your text is kept in ${copy}`);
  }
}

async function putBack(
  session: Session,
  { file, name }: { file: string; name: string },
  before: Uint8Array | undefined,
  after: Uint8Array<ArrayBuffer>,
): Promise<void> {
  if (!isSame(await readIfAny(session, file), before)) {
    throw new CliError(`${name} was changed in the session meanwhile, and was not overwritten`, {
      hint: `Merge the two, then put it there: viv cp FILE ${name}`,
    });
  }
  const place = sessionPlace(session, new AbortController().signal);
  const entry = before && (await scanGuest(session, absolutePath(file), { depth: 0 }))?.get("");
  await session.files.upload(file, after);
  // The upload gave the file the default mode, so its earlier mode is set again; its time is now.
  if (entry === undefined) return;
  const edited = { ...entry, modifiedAt: Math.floor(Date.now() / 1000) };
  await place.finish([{ path: absolutePath(file), entry: edited, isNew: true }]);
}

async function readIfAny(session: Session, file: string): Promise<Uint8Array | undefined> {
  if ((await scanGuest(session, absolutePath(file), { depth: 0 })) === undefined) return undefined;
  return Buffer.concat(await Array.fromAsync(session.files.readStream(file)));
}

function isSame(one: Uint8Array | undefined, other: Uint8Array | undefined): boolean {
  return one === undefined || other === undefined ? one === other : Buffer.compare(one, other) === 0;
}
