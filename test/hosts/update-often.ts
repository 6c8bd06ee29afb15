/**
 * Updates the unit of this host to next versions by `viv install`, under load: `update-often.ts --good 10 --bad 10`. Good
 * ones add a migration. Bad ones are of these kinds, one after the other; after each the version of before serves, with
 * its rows, and nothing that was acknowledged is lost:
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
const NEXT = "/var/tmp/vivarium-next";
const MIGRATIONS = path.join(NEXT, "packages/control/src/db/migrations");
const CONTROL = path.join(NEXT, "packages/control/src/main.ts");
/** Bytes that a full disk has left: less than any copy needs. */
const LEFT_BYTES = 256 * 1024 * 1024;
const ENDS_WITHIN_MS = 1_200_000;

const { values } = parseArgs({
  options: { good: { type: "string", default: "10" }, bad: { type: "string", default: "10" } },
});

const load = new UpdateLoad();

/** A checkout that is changed from round to round; its packages of npm are the project's. */
function makeNext(): void {
  rmSync(NEXT, { recursive: true, force: true });
  const isNeeded = (source: string) =>
    !/^(\.git|node_modules|guest\/target)$/.test(path.relative(PROJECT, source));
  cpSync(PROJECT, NEXT, { recursive: true, verbatimSymlinks: true, filter: isNeeded });
  symlinkSync(path.join(PROJECT, "node_modules"), path.join(NEXT, "node_modules"));
}

/** Adds a migration with the next number; returns the function that takes it away. */
function addMigration(sql: string): () => void {
  const number = readdirSync(MIGRATIONS).filter((name) => name.endsWith(".sql")).length + 1;
  const file = path.join(MIGRATIONS, `${String(number).padStart(4, "0")}_update_${number}.sql`);
  writeFileSync(file, sql.replaceAll("NUMBER", String(number)));
  return () => rmSync(file);
}

async function updateWell(round: number): Promise<void> {
  addMigration("create table update_NUMBER (id integer);");
  const before = await versions();
  const { code, output } = await install();
  if (code !== 0) throw new Error(`update ${round} ended with code ${code}:\n${output}`);
  const after = await versions();
  if (after.copy === before.copy) throw new Error(`update ${round} left the copy ${after.copy}`);
  expectEqual(after.previous, before.copy, "the copy that is kept to go back to");
  await load.check();
  report(`update ${round}`, after);
}

async function updateBadly(round: number, kind: Kind): Promise<void> {
  const before = await versions();
  const clearUp = SPOIL[kind]();
  const installing = install(kind);
  const { code, output } = await installing;
  clearUp();
  await untilSettled();
  const after = await versions();
  // An install that is killed may have got to its end.
  const mayBeNew = kind === "install is killed" && after.copy !== before.copy;
  if (!mayBeNew) {
    expectEqual(after.copy, before.copy, `the copy after ${kind}`);
    if (kind !== "install is killed" && code !== 1)
      throw new Error(`bad update ${round} (${kind}) ended with code ${code}:\n${output}`);
  }
  if (kind === "migration fails" || kind === "disk is full")
    expectEqual(after.supervisor, before.supervisor, `the supervisor, which ${kind} does not stop`);
  await load.check();
  report(`bad update ${round} (${kind})`, after);
}

/** Makes the next version bad; each returns what mends it. */
const SPOIL: Record<Kind, () => () => void> = {
  "migration fails": () => addMigration("create table update_NUMBER (id integer); select 1 / 0;"),
  "control dies": () => {
    const takeAway = addMigration("create table update_NUMBER (id integer);");
    const source = readFileSync(CONTROL, "utf8");
    // After the migration: the rows of before must be put back.
    writeFileSync(CONTROL, source.replace("app.startSweeps();", "process.exit(1);"));
    return () => {
      writeFileSync(CONTROL, source);
      takeAway();
    };
  },
  "disk is full": () => {
    const takeAway = addMigration("create table update_NUMBER (id integer);");
    const { bavail, bsize } = statfsSync(COPIES);
    execFileSync("fallocate", ["-l", String(bavail * bsize - LEFT_BYTES), FILLER]);
    return () => {
      rmSync(FILLER);
      takeAway();
    };
  },
  "unit is killed": () => addMigration("create table update_NUMBER (id integer);"),
  "install is killed": () => {
    addMigration("create table update_NUMBER (id integer);");
    return () => {};
  },
};

async function install(kind?: Kind): Promise<{ code: number | null; output: string }> {
  const child = spawn(path.join(NEXT, "viv"), ["install"], {
    cwd: NEXT,
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

makeNext();
await load.start();
await load.check();
for (let round = 1; round <= Number(values.good); round++) await updateWell(round);
for (let round = 1; round <= Number(values.bad); round++)
  await updateBadly(round, KINDS[(round - 1) % KINDS.length] as Kind);
console.log(`nothing acknowledged was lost: ${JSON.stringify(load.figures)}`);
await load.stop();
rmSync(NEXT, { recursive: true });
