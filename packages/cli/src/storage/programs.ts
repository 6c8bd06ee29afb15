/**
 * Runs the programs of control and node that say what is stored (`storage.ts` of each), with the lowest priority
 * (`VIV_STORAGE_NICENESS`): sessions come first, for the processors and for the disk.
 */
import { spawn } from "node:child_process";
import { createInterface } from "node:readline";
import { text } from "node:stream/consumers";
import { databasePlace } from "../backup/database.ts";
import { withAddress, withPool } from "../backup/source.ts";
import { CliError } from "../cli-error.ts";
import type { Context } from "../context.ts";
import { withConfigInForce } from "../install/config-in-force.ts";
import { layoutOf } from "../supervisor/layout.ts";
import { ENTRY_POINTS } from "../supervisor/repository.ts";

const LOWEST_PRIORITY = "19";

/** Runs both programs, each called with the lines that it writes. */
export interface Programs {
  node(args: readonly string[], onLine: (line: never) => void): Promise<void>;
  control(args: readonly string[], onLine: (line: never) => void): Promise<void>;
}

/** Calls `work` with the programs of a data directory, whose service may run or not. */
export async function withPrograms<T>(
  context: Context,
  { command, signal }: { command: string; signal: AbortSignal },
  work: (programs: Programs) => Promise<T>,
): Promise<T> {
  const { config: inForce, terminal } = await withConfigInForce(context);
  const layout = layoutOf(inForce.dataDir, inForce.imagesDir);
  const place = databasePlace(inForce);
  return await withPool({ layout, terminal, isNeeded: true, command }, ({ isHeld }) =>
    withAddress({ layout, place, isHeld, command }, (url) => {
      const dirs = ["--data-dir", layout.dataDir, "--images-dir", layout.imagesDir];
      const given = { niceness: inForce.childEnv.VIV_STORAGE_NICENESS || LOWEST_PRIORITY, signal };
      const env = {
        ...inForce.childEnv,
        DATABASE_URL: url,
        VIV_DATA_DIR: layout.dataDir,
        VIV_CONTROL_USER: place.controlUser,
        // The key-encryption keys of a service that a supervisor starts are in its data directory, unless settings say otherwise.
        VIV_SUPERVISED: "1",
      };
      return work({
        node: (args, onLine) =>
          run(ENTRY_POINTS.storageOfNode, [...args, ...dirs], { ...given, env: inForce.childEnv, onLine }),
        control: (args, onLine) => run(ENTRY_POINTS.storageOfControl, args, { ...given, env, onLine }),
      });
    }),
  );
}

interface Call {
  env: Record<string, string>;
  niceness: string;
  signal: AbortSignal;
  onLine: (line: never) => void;
}

async function run(
  program: string,
  args: readonly string[],
  { env, niceness, signal, onLine }: Call,
): Promise<void> {
  const idle = ["--class", "3", "nice", `--adjustment=${niceness}`];
  const child = spawn("ionice", [...idle, process.execPath, program, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    cwd: "/",
    env: { ...env, NODE_NO_WARNINGS: "1" },
    signal,
  });
  const ended = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  const read = async () => {
    for await (const line of createInterface(child.stdout)) onLine(JSON.parse(line) as never);
  };
  const [code, err] = await Promise.all([ended, text(child.stderr), read()]).catch((error: unknown) => {
    signal.throwIfAborted();
    throw error;
  });
  if (code === 0) return;
  throw new CliError(`cannot read what is stored: ${err.trim().split("\n").at(-1) || `exit code ${code}`}`);
}
