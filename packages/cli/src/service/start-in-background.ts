import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { mkdir, open, stat } from "node:fs/promises";
import { sleep } from "@vivarium/kit/clock";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import { connectWithoutKey } from "../connect.ts";
import type { Context } from "../context.ts";
import { EXIT } from "../exit-codes.ts";
import { BANNER_START } from "../print/banner.ts";
import { layoutOf, logFile } from "../supervisor/layout.ts";
import { findService } from "../supervisor/lock.ts";
import { ENTRY_POINTS } from "../supervisor/repository.ts";
import type { Terminal } from "../terminal.ts";
import { startDeadline } from "./start-deadline.ts";
import { WAIT_FOR_START_MS } from "./start-limit.ts";
import { askHealth } from "./wait-for-health.ts";

const POLL_MS = 100;

/** Starts `viv up` detached from this terminal, shows its progress, and returns when the service answers. */
export async function startInBackground({ config, terminal }: Context): Promise<void> {
  if (process.getuid?.() !== 0) {
    throw new CliError("starting the service needs root", {
      hint: "Start it once with: sudo viv up --background",
    });
  }
  const layout = layoutOf(config.dataDir, config.imagesDir);
  await mkdir(layout.logDir, { recursive: true });
  const file = logFile(layout, "supervisor");
  const from = await stat(file).then(
    ({ size }) => size,
    () => 0,
  );
  const ended = spawnSupervisor(config, file);
  await waitForAnswer(config, ended, followLog(terminal, file, from));
}

async function waitForAnswer(
  config: CliConfig,
  ended: { code: number | undefined },
  follow: () => Promise<string>,
): Promise<void> {
  const client = connectWithoutKey(config);
  const isOver = startDeadline(layoutOf(config.dataDir).lockFile);
  while (!(await isOver())) {
    const said = await follow();
    // Another start may have taken the lock first: then that service is awaited.
    const isOvertaken = ended.code === EXIT.alreadyRunning;
    if ((isOvertaken || said.includes(BANNER_START)) && (await askHealth(client))) return;
    if (isOvertaken) await refuseOtherAddress(config);
    if (ended.code !== undefined && !isOvertaken) {
      await follow();
      throw new CliError("the service did not start; its last words are above", {
        hint: `See ${config.dataDir}/log/*.log and viv doctor.`,
      });
    }
    await sleep(POLL_MS);
  }
  throw new CliError(`the service does not answer at ${config.url} after ${WAIT_FOR_START_MS / 1000} s`, {
    hint: `See ${config.dataDir}/log/*.log and viv doctor.`,
  });
}

/** Fails if the service that holds the lock answers at its own address, but not at the one that was asked for. */
async function refuseOtherAddress(config: CliConfig): Promise<void> {
  const holder = await findService(layoutOf(config.dataDir).lockFile);
  if (!holder || !(await askHealth(connectWithoutKey({ ...config, url: holder.url })))) return;
  // Asked second: a service that listens at both addresses has become healthy by now.
  if (await askHealth(connectWithoutKey(config))) return;
  throw new CliError(`the service of ${config.dataDir} answers at ${holder.url}, not at ${config.url}`, {
    hint: `Use its address (--url ${holder.url}, or VIV_URL), or start another service with a --data-dir of its own.`,
  });
}

function spawnSupervisor(config: CliConfig, file: string): { code: number | undefined } {
  const log = openSync(file, "a", 0o640);
  const args = [ENTRY_POINTS.cli, "up", "--listen", config.listen, "--data-dir", config.dataDir];
  if (config.imagesDir) args.push("--images-dir", config.imagesDir);
  const env = { ...config.childEnv, ...(config.databaseUrl ? { DATABASE_URL: config.databaseUrl } : {}) };
  const child = spawn(process.execPath, args, { detached: true, cwd: "/", env, stdio: ["ignore", log, log] });
  closeSync(log);
  const ended: { code: number | undefined } = { code: undefined };
  child.on("error", () => {
    ended.code = EXIT.failed;
  });
  child.on("exit", (code) => {
    ended.code = code ?? EXIT.failed;
  });
  child.unref();
  return ended;
}

/** Returns a function that shows the lines written since its last call, and returns all lines so far. */
function followLog(terminal: Terminal, file: string, from: number): () => Promise<string> {
  let shownChars = 0;
  return async () => {
    const text = await readFrom(file, from);
    const whole = text.slice(0, text.lastIndexOf("\n") + 1);
    const fresh = whole.slice(shownChars).trimEnd();
    shownChars = whole.length;
    if (fresh !== "") terminal.note(fresh);
    return whole;
  };
}

async function readFrom(file: string, from: number): Promise<string> {
  await using handle = await open(file, "r");
  const size = (await handle.stat()).size - from;
  if (size <= 0) return "";
  const { buffer, bytesRead } = await handle.read(Buffer.alloc(size), 0, size, from);
  return buffer.toString("utf8", 0, bytesRead);
}
