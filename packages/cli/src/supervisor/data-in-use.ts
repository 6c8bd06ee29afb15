/**
 * Whether the data of a data directory that is in use is there. A data directory, or its pool, on a disk that is not
 * mounted is an empty directory, and a start would fill it. scripts/require-data keeps a mark of each on the host's own disk.
 */
import { runHostCommand } from "@vivarium/kit/host-command";
import { CliError } from "../cli-error.ts";
import { REQUIRE_DATA } from "./repository.ts";

const LIMIT_MS = 30_000;

/** Fails, with what is missing, before anything is written into another directory than the one that is in use. */
export async function requireData(dataDir: string): Promise<void> {
  const lack = await lackOfData(dataDir);
  if (lack !== undefined) throw new CliError(lack.found, { hint: lack.remedy });
}

/** The data that is missing and what to do, undefined if all is there. */
export async function lackOfData(dataDir: string): Promise<{ found: string; remedy: string } | undefined> {
  const { code, stderr } = await call(dataDir);
  if (code === 0) return undefined;
  const [found = "", ...remedy] = stderr
    .trim()
    .replace(/^require-data: /, "")
    .split("\n");
  return { found: found || `exit code ${code} of ${REQUIRE_DATA}`, remedy: remedy.join(" ") };
}

/** The mark that the data directory is in use on disks of its own; undefined if it is on the host's own disk. */
export async function markOf(dataDir: string): Promise<string | undefined> {
  return (await call("--file", dataDir)).stdout.trim() || undefined;
}

/** Ends the mark: the data is deleted. */
export async function endMark(dataDir: string): Promise<void> {
  const { code, stderr } = await call("--end", dataDir);
  if (code !== 0) throw new Error(stderr.trim() || `exit code ${code} of ${REQUIRE_DATA}`);
}

const call = (...args: string[]) => runHostCommand(REQUIRE_DATA, args, { timeoutMs: LIMIT_MS });
