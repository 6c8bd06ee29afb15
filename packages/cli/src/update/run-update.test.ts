/** The state machine of updates against a service manager, a database and versions that are played. */
import { readFile, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { serviceUnit } from "../install/unit-text.ts";
import { type Journal, NEXT, readJournal } from "./journal.ts";
import { continueUpdate, type Ended, runUpdate, type UpdateDeps } from "./run-update.ts";

inOwnDirectories();

const OLD_SCHEMA = 17;
const NEW_SCHEMA = 18;
const unitOf = (version: string) =>
  serviceUnit({
    name: "vivarium",
    copy: `/copies/${version}`,
    dataDir: "/data",
    settingsFile: "/s.env",
    journalFile: "/j.json",
    systemd: 257,
  });

type Version = "old" | "new";

/** The new version: what it does at its start, and whether the one of before can start again. */
interface Manner {
  migrates: boolean;
  serves: boolean;
  /** Rows cannot be put back. */
  losesRows?: boolean;
}

async function settle<T>(work: () => Promise<T> | T): Promise<{ value?: T; error?: unknown }> {
  try {
    return { value: await work() };
  } catch (error) {
    return { error };
  }
}

class Host {
  readonly manner: Manner;
  readonly notes: string[] = [];
  readonly copies = ["/copies/old", "/copies/new"];
  running: Version | undefined = "old";
  schema = OLD_SCHEMA;
  /** Counts migrations; the rows' state would be lost by a second one without the rows of before. */
  migrations = 0;

  constructor(manner: Manner) {
    this.manner = manner;
  }

  get files() {
    const [unitFile, settingsFile] = [path.join(dir, "v.service"), path.join(dir, "v.env")];
    return { unitFile, settingsFile, journalFile: path.join(dir, "update.json") };
  }

  /** `dieAt`: number of the call at which the process that updates dies, which then never returns. */
  deps(dieAt = Number.POSITIVE_INFINITY): { deps: UpdateDeps; died: Promise<"died"> } {
    const { promise: died, resolve } = Promise.withResolvers<"died">();
    let calls = 0;
    const call = async <T>(work: () => Promise<T> | T): Promise<T> => {
      calls++;
      const isLast = calls >= dieAt;
      const outcome = calls > dieAt ? undefined : await settle(work);
      if (isLast) {
        resolve("died");
        return await new Promise<T>(() => {});
      }
      if (outcome?.error) throw outcome.error;
      return outcome?.value as T;
    };
    const deps: UpdateDeps = {
      ...this.files,
      units: {
        stop: () =>
          call(() => {
            this.running = undefined;
          }),
        reload: () => call(() => {}),
        start: () => call(() => this.start()),
      },
      waitUntilServes: (version) =>
        call(() => {
          if (this.running === undefined || (version !== undefined && this.running !== version))
            throw new Error(`${this.running} answers instead of ${version}`);
        }),
      putRowsBack: () =>
        call(() => {
          if (this.manner.losesRows) throw new Error("the database does not start");
          if (this.schema === OLD_SCHEMA) return undefined;
          this.schema = OLD_SCHEMA;
          return "the rows are back";
        }),
      removeCopy: (copy) => call(() => void this.copies.splice(this.copies.indexOf(copy), 1)),
      note: (line) => void this.notes.push(line),
    };
    return { deps, died };
  }

  async start(): Promise<void> {
    if (this.running) return;
    const version: Version = (await readFile(this.files.unitFile, "utf8")).includes("/copies/new")
      ? "new"
      : "old";
    if (version === "old" && this.schema > OLD_SCHEMA) throw new Error("the database has schema 18");
    if (version === "new" && this.manner.migrates && this.schema < NEW_SCHEMA) {
      this.schema = NEW_SCHEMA;
      this.migrations++;
    }
    if (version === "new" && !this.manner.serves) throw new Error("control died at its start");
    this.running = version;
  }
}

async function begin(): Promise<Journal> {
  const before = { unit: unitOf("old"), settings: "VIV_LISTEN=a\n" };
  await writeFile(path.join(dir, "v.service"), before.unit);
  await writeFile(path.join(dir, "v.env"), before.settings);
  await rm(path.join(dir, "update.json"), { force: true });
  return {
    format: 1,
    phase: "switching",
    unit: "vivarium",
    dataDir: "/data",
    before,
    after: {
      unit: unitOf("new"),
      settings: "VIV_LISTEN=b\n",
      version: "new",
      copy: "/copies/new",
      isNew: true,
    },
    since: "2027-03-01T09:30:00Z",
  };
}

const textsNow = async ({ files }: Host) => ({
  unit: await readFile(files.unitFile, "utf8"),
  settings: await readFile(files.settingsFile, "utf8"),
});

/** Checks the properties that hold after every update that has ended. */
async function expectWhole(host: Host, journal: Journal, { outcome }: Ended): Promise<void> {
  const isNew = outcome === "updated";
  const { unit, settings } = isNew ? journal.after : journal.before;
  expect(await textsNow(host)).toEqual({ unit, settings });
  expect(host.running).toBe(isNew ? "new" : "old");
  if (!isNew) expect(host.schema).toBe(OLD_SCHEMA);
  if (isNew && host.manner.migrates) expect(host.schema).toBe(NEW_SCHEMA);
  expect(host.copies).toEqual(isNew ? ["/copies/old", "/copies/new"] : ["/copies/old"]);
  expect(await readJournal(host.files.journalFile)).toBeUndefined();
}

test("a version that serves replaces the one of before, and migrates once", async () => {
  const host = new Host({ migrates: true, serves: true });
  const journal = await begin();
  const ended = await runUpdate(host.deps().deps, journal);
  expect(ended).toEqual({ outcome: "updated", reason: undefined });
  expect(host.migrations).toBe(1);
  await expectWhole(host, journal, ended);
});

test.each([true, false])(
  "a version that does not serve (migrates: %s) leaves all as it was",
  async (migrates) => {
    const host = new Host({ migrates, serves: false });
    const journal = await begin();
    const ended = await runUpdate(host.deps().deps, journal);
    expect(ended).toEqual({ outcome: "reverted", reason: "control died at its start" });
    await expectWhole(host, journal, ended);
  },
);

test.each([
  { migrates: true, serves: true },
  { migrates: true, serves: false },
  { migrates: false, serves: false },
])("whenever its process dies, another one comes to a working version: %j", async (manner) => {
  for (let dieAt = 1; ; dieAt++) {
    const host = new Host(manner);
    const journal = await begin();
    const first = host.deps(dieAt);
    const result = await Promise.race([runUpdate(first.deps, journal), first.died]);
    if (result !== "died") {
      expect(dieAt).toBeGreaterThan(4);
      return;
    }
    const left = await readJournal(host.files.journalFile);
    // The process may have died with the last step done: then nothing is left to do.
    if (left) await expectWhole(host, journal, await continueUpdate(host.deps().deps, left));
    else expect(host.running).toBeDefined();
  }
});

test("a second death, while another process goes back, leaves a journal that a third one ends", async () => {
  for (let dieAt = 1; dieAt <= 5; dieAt++) {
    const host = new Host({ migrates: true, serves: false });
    const journal = await begin();
    const first = host.deps(3);
    await Promise.race([runUpdate(first.deps, journal), first.died]);
    const second = host.deps(dieAt);
    const left = (await readJournal(host.files.journalFile)) as Journal;
    await Promise.race([continueUpdate(second.deps, left), second.died]);
    const again = await readJournal(host.files.journalFile);
    if (again) await expectWhole(host, journal, await continueUpdate(host.deps().deps, again));
    expect([host.running, host.schema]).toEqual(["old", OLD_SCHEMA]);
  }
});

test("where going back fails, the journal stays with the first reason, and a later process ends it", async () => {
  const host = new Host({ migrates: true, serves: false, losesRows: true });
  const journal = await begin();
  const ended = await runUpdate(host.deps().deps, journal);
  expect(ended).toEqual({ outcome: "stuck", reason: "control died at its start" });
  const left = (await readJournal(host.files.journalFile)) as Journal;
  expect(left).toMatchObject({ phase: "reverting", reason: "control died at its start" });
  host.manner.losesRows = false;
  await expectWhole(host, journal, await continueUpdate(host.deps().deps, left));
});

test("settings that the operator has changed during an update stay when it goes back, and when another process does", async () => {
  const mended = "VIV_LISTEN=mended\n";
  for (const dieAt of [undefined, 3]) {
    const host = new Host({ migrates: false, serves: false });
    const journal = await begin();
    const { deps, died } = host.deps(dieAt);
    const { start } = deps.units;
    deps.units.start = async (unit) => {
      await writeFile(host.files.settingsFile, mended);
      await start(unit);
    };
    await Promise.race([runUpdate(deps, journal), died]);
    const left = await readJournal(host.files.journalFile);
    if (left) await continueUpdate(host.deps().deps, left);
    expect(host.running).toBe("old");
    expect(await textsNow(host)).toEqual({ unit: journal.before.unit, settings: mended });
    expect(host.notes.join("\n")).toContain("was changed during the update, and stays");
  }
});

test("rows that cannot be put back do not keep the version of before from serving, if the schema is its own", async () => {
  const host = new Host({ migrates: false, serves: false, losesRows: true });
  const journal = await begin();
  const ended = await runUpdate(host.deps().deps, journal);
  expect(host.notes.join("\n")).toContain("the rows of before are not put back: the database does not start");
  await expectWhole(host, journal, ended);
});

test("a version whose copy was there before, such as the one that runs, keeps it when it fails", async () => {
  const host = new Host({ migrates: false, serves: false });
  const journal = await begin();
  const after = { ...journal.after, isNew: false };
  const same = { ...journal, before: { ...journal.before, unit: after.unit }, after };
  host.manner.serves = true;
  host.running = "new";
  const { deps } = host.deps();
  let starts = 0;
  deps.units.start = async () => {
    starts++;
    if (starts === 1) throw new Error("cannot listen");
    await host.start();
  };
  expect((await runUpdate(deps, same)).outcome).toBe("reverted");
  expect(host.copies).toContain("/copies/new");
});

test("every phase leads to an end", () => {
  for (const { done, failed } of Object.values(NEXT))
    for (const next of [done, failed])
      expect([...Object.keys(NEXT), "updated", "reverted", "stuck"]).toContain(next);
});
