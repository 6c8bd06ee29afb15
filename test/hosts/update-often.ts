/**
 * Updates the unit of this host twice by `viv install`, under load: `update-often.ts --round 1`. The first update adds a
 * migration. The second is bad, of a kind that the round's number chooses; after it the version of before serves, with its
 * rows, and nothing that was acknowledged is lost. The kinds:
 */
import { execFileSync, spawn } from "node:child_process";
import {
  cpSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  statfsSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import path from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { expectEqual } from "./inside.ts";
import { UpdateLoad } from "./update-load.ts";

const KINDS = [
  "migration fails",
  "control dies",
  "disk is full",
  "unit is killed",
  "install is killed",
] as const;
type Kind = (typeof KINDS)[number];

const UNIT = "vivarium";
const COPIES = `/usr/local/lib/vivarium/${UNIT}`;
const JOURNAL = `${COPIES}/update.json`;
const FILLER = `${COPIES}.filler`;
const PROJECT = path.join(import.meta.dirname, "../..");
/** Checkouts of the next versions: one that gains a migration with each good update, and a spoiled copy of it. */
const NEXT = "/var/tmp/vivarium-next";
const BAD = "/var/tmp/vivarium-bad";
/** Bytes that a full disk has left: less than any copy needs. */
const LEFT_BYTES = 256 * 1024 * 1024;
const ENDS_WITHIN_MS = 1_200_000;

const { values } = parseArgs({ options: { round: { type: "string", default: "1" } } });

const load = new UpdateLoad();

/** Copies a checkout; its packages of npm are the project's. */
function copyCheckout(from: string, to: string): void {
  rmSync(to, { recursive: true, force: true });
  const isNeeded = (source: string) =>
    !/^(\.git|node_modules|guest\/target)$/.test(path.relative(from, source));
  cpSync(from, to, { recursive: true, verbatimSymlinks: true, filter: isNeeded });
  symlinkSync(path.join(PROJECT, "node_modules"), path.join(to, "node_modules"));
}

const controlIn = (checkout: string) => path.join(checkout, "packages/control/src");
const migrationsIn = (checkout: string) => path.join(controlIn(checkout), "db/migrations");

/** Adds a migration with the next number. */
function addMigration(checkout: string, sql: string): void {
  const number = readdirSync(migrationsIn(checkout)).filter((name) => name.endsWith(".sql")).length + 1;
  const file = `${String(number).padStart(4, "0")}_update_${number}.sql`;
  writeFileSync(path.join(migrationsIn(checkout), file), sql.replaceAll("NUMBER", String(number)));
}

const MAKES_TABLE = "create table if not exists update_NUMBER (id integer);";

async function updateWell(round: number): Promise<void> {
  addMigration(NEXT, MAKES_TABLE);
  const before = await versions();
  const { code, output } = await install(NEXT);
  if (code !== 0) throw new Error(`update ${round} ended with code ${code}:\n${output}`);
  const after = await versions();
  if (after.copy === before.copy) throw new Error(`update ${round} left the copy ${after.copy}`);
  expectEqual(after.previous, before.copy, "the copy that is kept to go back to");
  await load.check();
  report(`update ${round}`, after);
}

async function updateBadly(round: number, kind: Kind): Promise<void> {
  const before = await versions();
  copyCheckout(NEXT, BAD);
  addMigration(BAD, kind === "migration fails" ? `${MAKES_TABLE} select 1 / 0;` : MAKES_TABLE);
  if (kind === "control dies") letControlDie();
  if (kind === "disk is full") fillDisk();
  const { code, output } = await install(BAD, kind);
  rmSync(FILLER, { force: true });
  await untilSettled();
  const after = await versions();
  // An install that is killed may have got to its end.
  const isNew = kind === "install is killed" && after.copy !== before.copy;
  if (isNew) cpSync(migrationsIn(BAD), migrationsIn(NEXT), { recursive: true });
  if (!isNew) {
    expectEqual(after.copy, before.copy, `the copy after ${kind}`);
    if (kind !== "install is killed" && code !== 1)
      throw new Error(`bad update ${round} (${kind}) ended with code ${code}:\n${output}`);
  }
  if (kind === "migration fails" || kind === "disk is full")
    expectEqual(after.supervisor, before.supervisor, `the supervisor, which ${kind} does not stop`);
  await load.check();
  report(`bad update ${round} (${kind})`, after);
}

/** After the migration: the rows of before must be put back. */
function letControlDie(): void {
  const file = path.join(controlIn(BAD), "main.ts");
  const source = readFileSync(file, "utf8");
  const spoiled = source.replace("app.startSweeps();", "process.exit(1);");
  if (spoiled === source) throw new Error(`${file} does not start its sweeps where this expects it`);
  writeFileSync(file, spoiled);
}

function fillDisk(): void {
  const { bavail, bsize } = statfsSync(COPIES);
  execFileSync("fallocate", ["-l", String(bavail * bsize - LEFT_BYTES), FILLER]);
}

async function install(checkout: string, kind?: Kind): Promise<{ code: number | null; output: string }> {
  const child = spawn(path.join(checkout, "viv"), ["install"], {
    cwd: checkout,
    stdio: ["ignore", "pipe", "pipe"],
    detached: true,
  });
  const output = Promise.all([text(child.stdout), text(child.stderr)]).then((parts) => parts.join(""));
  const ended = new Promise<number | null>((resolve) => child.once("close", resolve));
  let isOver = false;
  void ended.then(() => {
    isOver = true;
  });
  while (!isOver) {
    const phase = phaseNow();
    if (kind === "unit is killed" && phase === "starting")
      await run("systemctl", "kill", "--signal=SIGKILL", `${UNIT}.service`);
    if (kind === "install is killed" && phase !== undefined) {
      // At another instant each time.
      await sleep(Math.random() * 20_000);
      if (!isOver) process.kill(-(child.pid as number), "SIGKILL");
      break;
    }
    await sleep(300);
  }
  return { code: await ended, output: await output };
}

function phaseNow(): string | undefined {
  try {
    return JSON.parse(readFileSync(JOURNAL, "utf8")).phase;
  } catch {
    return undefined;
  }
}

/** Waits until no update is unfinished: the unit beside it ends one whose process was killed. */
async function untilSettled(): Promise<void> {
  const deadline = Date.now() + ENDS_WITHIN_MS;
  while (existsSync(JOURNAL)) {
    if (Date.now() > deadline) throw new Error(`the update is not finished: ${phaseNow()}`);
    await sleep(1_000);
  }
}

interface Found {
  copy: string | undefined;
  previous: string | undefined;
  supervisor: number | undefined;
}

async function versions(): Promise<Found> {
  const { unit, parts } = JSON.parse(await run(path.join(PROJECT, "viv"), "version", "--json"));
  return { copy: unit?.copy?.path, previous: unit?.previous?.path, supervisor: parts?.supervisor?.pid };
}

async function run(command: string, ...args: string[]): Promise<string> {
  const child = spawn(command, args, { cwd: PROJECT, stdio: ["ignore", "pipe", "inherit"] });
  const [out] = await Promise.all([
    text(child.stdout),
    new Promise((resolve) => child.once("close", resolve)),
  ]);
  return out;
}

function report(what: string, { copy }: Found): void {
  console.log(`${what}: ${path.basename(copy ?? "")} serves; ${JSON.stringify(load.figures)}`);
}

const round = Number(values.round);
rmSync(FILLER, { force: true });
await untilSettled();
if (!existsSync(NEXT)) copyCheckout(PROJECT, NEXT);
await load.start();
await load.check();
await updateWell(round);
await updateBadly(round, KINDS[(round - 1) % KINDS.length] as Kind);
console.log(`nothing acknowledged was lost: ${JSON.stringify(load.figures)}`);
await load.stop();
