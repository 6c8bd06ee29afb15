/** Packs and unpacks a backup: a tar in the POSIX format, which keeps holes, hard links and nanoseconds, in zstd. */
import { spawn } from "node:child_process";
import { type FileHandle, open, rename, rm } from "node:fs/promises";
import path from "node:path";
import { text } from "node:stream/consumers";
import { syncPath } from "@vivarium/kit/durable-file";
import { randomId } from "@vivarium/kit/id";
import { CliError } from "../cli-error.ts";

const PACK = ["--create", "--file=-", "--format=posix", "--sparse", "--numeric-owner", "--sort=name"];
const COMPRESS = "--use-compress-program=zstd -3 -T0";
const UNPACK = ["--extract", "--use-compress-program=zstd", "--numeric-owner", "--preserve-permissions"];

/** The contents of the archive: names in a directory. */
export interface Members {
  dir: string;
  names: readonly string[];
}

/** A line of tar's for a file whose inode changed meanwhile, also if only its number of names did. */
const CHANGED = /^tar: (.+): file changed as we read it$/;

export interface PackOptions {
  signal: AbortSignal;
  /** Called with the names of files whose inode changed while they were read; throws if the content did too. */
  verify(names: string[]): Promise<void>;
}

/** The archive has its name only once it is whole and on disk. Only its owner can read it: it holds keys. */
export async function pack(
  file: string,
  members: readonly Members[],
  { signal, verify }: PackOptions,
): Promise<void> {
  const partial = `${file}.${randomId(8)}.part`;
  const handle = await open(partial, "wx", 0o600);
  try {
    const names = members.flatMap(({ dir, names: of }) => [`--directory=${dir}`, ...of]);
    const what = `write ${file}`;
    const { changed } = await runTar([...PACK, COMPRESS, ...names], { stdout: handle, signal, what });
    if (changed.length > 0) await verify(changed);
    await handle.sync();
    await handle.close();
    await rename(partial, file);
    await syncPath(path.dirname(file));
  } catch (error) {
    await handle.close().catch(() => {});
    await rm(partial, { force: true });
    throw error;
  }
}

/** The content of the first file of an archive, which must have this name. */
export async function readFirst(file: string, name: string): Promise<string> {
  const { out } = await runTar([...UNPACK, "--to-stdout", "--occurrence=1", `--file=${file}`, name], {
    what: `read ${file}`,
  });
  return out;
}

export async function unpack(file: string, dir: string, signal: AbortSignal): Promise<void> {
  await runTar([...UNPACK, `--file=${file}`, `--directory=${dir}`], { signal, what: `unpack ${file}` });
}

async function runTar(
  args: string[],
  { stdout, signal, what }: { stdout?: FileHandle; signal?: AbortSignal; what: string },
): Promise<{ out: string; changed: string[] }> {
  const child = spawn("tar", args, {
    stdio: ["ignore", stdout?.fd ?? "pipe", "pipe"],
    env: { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C.UTF-8" },
    ...(signal && { signal }),
  });
  const ended = new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve(code ?? 1));
  });
  const [code, out, err] = await Promise.all([
    ended,
    child.stdout ? text(child.stdout) : "",
    child.stderr ? text(child.stderr) : "",
  ]);
  const lines = err.split("\n").filter((line) => line !== "");
  const changed = lines.flatMap((line) => CHANGED.exec(line)?.[1] ?? []);
  if (code === 0 || (code === 1 && changed.length > 0 && changed.length === lines.length))
    return { out, changed };
  if (err.includes("No space left on device"))
    throw new CliError(`cannot ${what}: its disk is full; nothing is left of it`, {
      hint: "Make room, or choose another disk.",
    });
  const reason = lines.slice(-3).join("; ") || `tar ended with ${code}`;
  throw new CliError(`cannot ${what}: ${reason}`, { hint: "It takes tar and zstd, which ./setup installs." });
}
