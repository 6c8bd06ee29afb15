import { spawn } from "node:child_process";
import { closeSync, openSync } from "node:fs";
import { mkdir, open, stat } from "node:fs/promises";
import { sleep } from "@vivarium/kit/clock";
import type { Health } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import { connectWithoutKey } from "../connect.ts";
import { EXIT } from "../exit-codes.ts";
import { layoutOf, logFile } from "../supervisor/layout.ts";
import { ENTRY_POINTS } from "../supervisor/repository.ts";
import type { Terminal } from "../terminal.ts";
import { askHealth } from "./wait-for-health.ts";

const LIMIT_MS = 120_000;
const POLL_MS = 100;

interface Deps {
  config: CliConfig;
  terminal: Terminal;
}

/** Starts `viv up` detached from this terminal, shows its progress, and returns when the service answers. */
export async function startInBackground({ config, terminal }: Deps, listen: string): Promise<Health> {
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
  const ended = spawnSupervisor({ config, terminal }, listen, file);
  const follow = followLog(terminal, file, from);
  return waitForAnswer(config, ended, follow);
}

async function waitForAnswer(
  config: CliConfig,
  ended: { code: number | undefined },
  follow: () => Promise<void>,
): Promise<Health> {
  const client = connectWithoutKey(config);
  const deadline = performance.now() + LIMIT_MS;
  while (performance.now() < deadline) {
    await follow();
    const health = await askHealth(client);
    if (health) {
      await follow();
      return health;
    }
    // Somebody else's start won the race: then that one is waited for.
    if (ended.code !== undefined && ended.code !== EXIT.alreadyRunning) {
      await follow();
      throw new CliError("the service did not start; its last words are above", {
        hint: `See ${config.dataDir}/log/*.log and viv doctor.`,
      });
    }
    await sleep(POLL_MS);
  }
  throw new CliError(`the service does not answer at ${config.url} after ${LIMIT_MS / 1000} s`, {
    hint: `See ${config.dataDir}/log/*.log and viv doctor.`,
  });
}

function spawnSupervisor({ config }: Deps, listen: string, file: string): { code: number | undefined } {
  const log = openSync(file, "a", 0o640);
  const args = [ENTRY_POINTS.cli, "up", "--listen", listen, "--data-dir", config.dataDir];
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

/** Each call shows what has been written since the one before. */
function followLog(terminal: Terminal, file: string, from: number): () => Promise<void> {
  let position = from;
  let rest = "";
  return async () => {
    const handle = await open(file, "r");
    try {
      const { size } = await handle.stat();
      if (size <= position) return;
      const { buffer, bytesRead } = await handle.read(
        Buffer.alloc(size - position),
        0,
        size - position,
        position,
      );
      position += bytesRead;
      const lines = (rest + buffer.toString("utf8", 0, bytesRead)).split("\n");
      rest = lines.pop() ?? "";
      for (const line of lines) terminal.note(line);
    } finally {
      await handle.close();
    }
  };
}
