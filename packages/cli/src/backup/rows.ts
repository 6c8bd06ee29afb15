/** Runs control's program that writes the database's rows, loads them, or tries migrations. */
import { type ChildProcess, spawn } from "node:child_process";
import { type FileHandle, open } from "node:fs/promises";
import type { Readable, Writable } from "node:stream";
import { text } from "node:stream/consumers";
import { hasCode, messageOf } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";
import { openUnprivileged } from "../service/read-unprivileged-file.ts";
import { ENTRY_POINTS } from "../supervisor/repository.ts";
import type { KeptObjects } from "./objects.ts";

/** The first line of a dump. */
export interface Head {
  schema: number;
  /** Saved states that rows refer to. */
  snapshots: string[];
  volumes: string[];
  artifacts: KeptObjects[];
  /** Spaces of archives of the warm tier. */
  archives: KeptObjects[];
  /** Versions of templates that were made of images, as `name@version`. */
  imported: string[];
}

/** Writes the dump to a file. `onHead` begins as soon as its first line is there, and is awaited at the end. */
export async function dumpRows(
  url: string,
  file: string,
  onHead: (head: Head) => Promise<void>,
): Promise<Head> {
  const child = start(["dump"], ["pipe", "pipe", "pipe"]);
  const ended = endOf(child);
  (child.stdin as Writable).end(url);
  await using handle = await open(file, "wx", 0o600);
  const first: Buffer[] = [];
  let head: Head | undefined;
  let handled: Promise<void> = Promise.resolve();
  for await (const chunk of child.stdout as Readable) {
    await handle.writeFile(chunk);
    if (head) continue;
    first.push(chunk);
    if (!chunk.includes("\n")) continue;
    const text = Buffer.concat(first).toString();
    head = JSON.parse(text.slice(0, text.indexOf("\n"))) as Head;
    handled = onHead(head);
    // A failure is thrown where it is awaited, below.
    handled.catch(() => {});
  }
  await requireSuccess(ended, "write the database's rows");
  await handle.sync();
  await handled;
  if (!head) throw new CliError("the database gave no rows");
  return head;
}

/** Throws if a load with the same `keepAside` would be refused. Nothing is changed. */
export async function checkLoad(url: string, { keepAside }: LoadOptions): Promise<void> {
  const child = start(["check", ...argsOf(keepAside)], ["pipe", "ignore", "pipe"]);
  const ended = endOf(child);
  (child.stdin as Writable).end(url);
  await requireSuccess(ended, "load the database's rows");
}

interface LoadOptions {
  keepAside: "restore" | "update" | undefined;
  /** A database of this schema is left as it is. */
  unlessSchemaIs?: number | undefined;
}

const argsOf = (keepAside: LoadOptions["keepAside"]) => (keepAside ? ["--keep-aside", keepAside] : []);

interface LoadedRows {
  /** Absent: the database was left as it is. */
  rows?: number;
  /** Name of the schema that the tables of before have now; of a database that was left as it is, the newest such schema. */
  aside?: string;
}

/** The exit code with which the program says that it changed nothing (control/src/backup.ts). */
const UNCHANGED = 1;

/** A load that may or may not have taken place: its process was killed, or the database did not answer at its end. */
export class UncertainLoad extends CliError {}

/** Loads a dump: all of it, on disk, or nothing. With `keepAside`, tables that are there are kept under another schema. */
export async function loadRows(
  url: string,
  file: string,
  { keepAside, unlessSchemaIs }: LoadOptions,
): Promise<LoadedRows> {
  await using handle = await openRows(file);
  const unless = unlessSchemaIs === undefined ? [] : ["--unless-schema", String(unlessSchemaIs)];
  const child = start(["load", ...argsOf(keepAside), ...unless], ["pipe", "pipe", "pipe", handle.fd]);
  const ended = endOf(child);
  (child.stdin as Writable).end(url);
  const [out, { code, err }] = await Promise.all([text(child.stdout as Readable), ended]);
  if (code !== 0 && code !== UNCHANGED)
    throw new UncertainLoad(
      `cannot tell whether the database has the rows: ${err.split("\n").at(-1) || "the process that loads them was killed"}`,
    );
  await requireSuccess(ended, "load the database's rows");
  return JSON.parse(out) as LoadedRows;
}

/** Control's user owns the directory of the rows that were saved before an update, and could have put anything there. */
async function openRows(file: string): Promise<FileHandle> {
  return await openUnprivileged(file).catch((cause: unknown) => {
    const reason = hasCode(cause, "ELOOP") ? "it is a link" : messageOf(cause);
    throw new CliError(`cannot read the rows in ${file}: ${reason}`, {
      hint: "It must be a plain file with one name, as viv backup and an update write it.",
      cause,
    });
  });
}

/** The number of a database's schema, and the migrations that a version would apply to it. */
export interface SchemaState {
  schema: number;
  pending: number[];
  /** Size of the database. */
  bytes: number;
}

/** Asks the version whose `program` is given. `try`: every pending migration is applied, and rolled back. */
export async function readSchemaState(
  url: string,
  how: "look" | "try",
  program: string = ENTRY_POINTS.backup,
): Promise<SchemaState> {
  const child = start([how], ["pipe", "pipe", "pipe"], program);
  const ended = endOf(child);
  (child.stdin as Writable).end(url);
  const [out] = await Promise.all([
    text(child.stdout as Readable),
    requireSuccess(ended, how === "try" ? "try the migrations" : "read the database's schema"),
  ]);
  return JSON.parse(out) as SchemaState;
}

function start(
  args: string[],
  stdio: ("pipe" | "ignore" | number)[],
  program: string = ENTRY_POINTS.backup,
): ChildProcess {
  return spawn(process.execPath, [program, ...args], {
    stdio,
    cwd: "/",
    env: { NODE_NO_WARNINGS: "1" },
  });
}

async function endOf(child: ChildProcess): Promise<{ code: number | null; err: string }> {
  child.stdin?.on("error", () => {});
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  const [code, err] = await Promise.all([ended, text(child.stderr as Readable)]);
  return { code, err: err.trim() };
}

async function requireSuccess(ended: ReturnType<typeof endOf>, what: string): Promise<void> {
  const { code, err } = await ended;
  if (code !== 0) throw new CliError(`cannot ${what}: ${err.split("\n").at(-1) || `exit code ${code}`}`);
}
