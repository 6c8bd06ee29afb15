/** Reads key-encryption keys from where the operator keeps them: a file, the environment, or a command's output. */
import { execFile } from "node:child_process";
import { readFile, stat } from "node:fs/promises";
import { promisify } from "node:util";
import { writeDurably } from "@vivarium/kit/durable-file";
import { makeOnce } from "../access/make-once.ts";
import { type Kek, kekLine, newKek, parseKeks } from "./kek-text.ts";

/** `mayMake`: the file is made if it is not there, and takes a new key at a rotation. */
export type KekSource =
  | { kind: "file"; file: string; mayMake: boolean }
  | { kind: "text"; text: string }
  | { kind: "command"; command: string };

const COMMAND_LIMIT_MS = 30_000;
const COMMAND_OUTPUT_BYTES = 1024 * 1024;
const HEAD = `# Key-encryption keys of Vivarium. Whoever has this file and the database can read every secret; whoever loses it
# can read none. The last line seals, the others only open.
`;

/** Undefined: the file is not there, and may be made. */
export async function readKeks(source: KekSource): Promise<Kek[] | undefined> {
  if (source.kind === "text") return parseKeks(source.text, "VIV_KEK");
  if (source.kind === "command") return parseKeks(await outputOf(source.command), "VIV_KEK_COMMAND");
  const { file, mayMake } = source;
  try {
    await refuseReadableByOthers(file);
    return parseKeks(await readFile(file, "utf8"), file);
  } catch (error) {
    if (mayMake && (error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw new Error(`the key-encryption keys cannot be read: ${(error as Error).message}`, { cause: error });
  }
}

/** Makes the file with one key. If several processes start together, the first one makes it for all. */
export async function makeKekFile(file: string): Promise<Kek[]> {
  return parseKeks((await makeOnce(file, HEAD + kekLine(newKek([])))).toString(), file);
}

/** Adds a key to the file, which seals from then on. */
export async function addKek(file: string): Promise<void> {
  const text = await readFile(file, "utf8");
  const added = `${text.trimEnd()}\n${kekLine(newKek(parseKeks(text, file)))}`;
  // The number after the highest may be too long: the file must stay one that can be read.
  parseKeks(added, file);
  await writeDurably(file, added, 0o600);
}

async function refuseReadableByOthers(file: string): Promise<void> {
  const { mode } = await stat(file);
  if ((mode & 0o007) !== 0) throw new Error(`every user can read ${file}; run: chmod 600 ${file}`);
}

async function outputOf(command: string): Promise<string> {
  const limits = { timeout: COMMAND_LIMIT_MS, maxBuffer: COMMAND_OUTPUT_BYTES };
  try {
    return (await promisify(execFile)("/bin/sh", ["-c", command], limits)).stdout;
  } catch (error) {
    // Its output may contain keys, and the message repeats the command, which may contain a credential.
    const { code, killed } = error as { code?: number | string; killed?: boolean };
    const how = killed ? `was not over after ${COMMAND_LIMIT_MS / 1000} s` : `ended with code ${code}`;
    throw new Error(`the command in VIV_KEK_COMMAND ${how}`);
  }
}
