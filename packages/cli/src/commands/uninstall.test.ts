import { existsSync } from "node:fs";
import { mkdir, mkdtemp, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { identify } from "@vivarium/kit/process-identity";
import { afterAll, beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { dir, inOwnDirectories, viv } from "../../test-support/program.ts";
import { CliError } from "../cli-error.ts";
import type { Installed } from "../install/installed.ts";
import type { Removal, Step } from "../install/removal.ts";

inOwnDirectories();

/** Calls of the verb. Nothing is removed here: the steps would be those of this host. */
const seen: { events: string[]; removals: Removal[] } = vi.hoisted(() => ({ events: [], removals: [] }));
const host: { units: Installed[]; isLocked: boolean; isMounted: boolean; steps: Step[] } = vi.hoisted(() => ({
  units: [],
  isLocked: false,
  isMounted: true,
  steps: [],
}));

// Other files of tests share modules of this process, without what is put in their place here.
vi.hoisted(() => vi.resetModules());
afterAll(() => void vi.resetModules());
vi.mock("../install/systemd.ts", async (original) => ({
  ...(await original<object>()),
  requireRootFor: () => {},
}));
vi.mock("../install/installed.ts", async (original) => ({
  ...(await original<object>()),
  listInstalled: async () => host.units,
}));
vi.mock("../install/removal.ts", async (original) => ({
  ...(await original<object>()),
  stepsOf: (removal: Removal) => {
    seen.events.push("steps");
    seen.removals.push(removal);
    return host.steps;
  },
}));
vi.mock("../supervisor/data-in-use.ts", async (original) => ({
  ...(await original<object>()),
  requireData: async () => {
    if (!host.isMounted) throw new CliError("its data is not there");
  },
}));
vi.mock("../service/stop-service.ts", () => ({
  stopService: async (_context: unknown, _holder: unknown, fate: string) => void seen.events.push(fate),
}));
vi.mock("../update/update-lock.ts", () => ({
  takeUpdateLock: async (unit: string) => {
    if (host.isLocked) throw new CliError(`viv install (pid 7) is at work on ${unit}.service`);
    seen.events.push("locked");
    return { release: async () => void seen.events.push("released") };
  },
}));

beforeEach(async () => {
  [seen.events, seen.removals] = [[], []];
  [host.units, host.isLocked, host.isMounted, host.steps] = [[], false, true, []];
  await writeFile(path.join(dir, "control/pepper"), "x");
});

const uninstall = (...args: string[]) =>
  viv("http://127.0.0.1:1", ["uninstall", "--name", "test-unit", ...args]);

function unitOf(name: string, facts: Partial<Installed>): Installed {
  return { name, unitFile: "/nowhere/u", settingsFile: "/nowhere/s", dataDir: dir, settings: {}, ...facts };
}

async function leaveLiveMachine(): Promise<void> {
  const folder = path.join(dir, "pool/m/mch_1");
  await mkdir(folder, { recursive: true });
  const entry = { state: "running", process: identify(process.pid) };
  await writeFile(path.join(folder, "machine.json"), JSON.stringify(entry));
}

/** A supervisor that runs: this process. */
async function leaveHolder(): Promise<void> {
  await mkdir(path.join(dir, "run"));
  const holder = { ...identify(process.pid), url: "http://127.0.0.1:1", pauses: true };
  await writeFile(path.join(dir, "run/supervisor.lock"), JSON.stringify(holder));
}

test("an uninstall holds the lock of updates until its last step, and removes nothing beside one", async () => {
  expect((await uninstall()).code).toBe(0);
  expect(seen.events).toEqual(["locked", "steps", "released"]);
  [seen.events, host.isLocked] = [[], true];
  const { code, err } = await uninstall("--data", "--yes");
  expect([code, seen.events]).toEqual([1, []]);
  expect(err).toContain("is at work on test-unit.service");
});

test.each([[[]], [["--data", "--yes"]]])(
  "nothing is removed, nor are settings moved, while the disk with the data is not mounted (%j)",
  async (more) => {
    host.isMounted = false;
    const { code, err } = await uninstall(...more);
    expect([code, seen.events]).toEqual([1, ["locked", "released"]]);
    expect(err).toContain("its data is not there");
  },
);

test.each(["--pause", "--sessions"])(
  "%s removes nothing while a machine lives and no service runs",
  async (fate) => {
    await leaveLiveMachine();
    const { code, err } = await uninstall(fate);
    expect([code, seen.events]).toEqual([1, ["locked", "released"]]);
    expect(err).toContain("1 session is live, and no service runs");
    expect((await uninstall("--data", "--yes")).code).toBe(0);
  },
);

test("machines are counted again after the stop: one whose pause was refused is not removed", async () => {
  await leaveLiveMachine();
  await leaveHolder();
  const { code, err } = await uninstall("--pause");
  expect([code, seen.events]).toEqual([1, ["locked", "pause", "released"]]);
  expect(err).toContain(`the service has stopped, and 1 session is still live in ${dir}`);
});

test.each([
  ["without --data", []],
  ["with --data", ["--data", "--yes"]],
])("nothing of a foreign directory is removed, %s", async (_how, more) => {
  const foreign = path.join(dir, "foreign");
  await mkdir(path.join(foreign, "run"), { recursive: true });
  const { code, err } = await uninstall("--data-dir", foreign, ...more);
  expect([code, seen.events]).toEqual([1, ["locked", "released"]]);
  expect(err).toContain(`${foreign} is no data directory of the service`);
  host.units = [unitOf("test-unit", { dataDir: foreign })];
  expect((await uninstall(...more)).code).toBe(0);
});

test("the directory of another unit is refused, also by a link to it", async () => {
  const link = `${dir}/link`;
  await symlink(dir, link);
  host.units = [unitOf("first", {})];
  const { code, err } = await uninstall("--data-dir", link);
  expect([code, seen.removals]).toEqual([1, []]);
  expect(err).toContain("is served by first.service");
});

test("builds of set-up are removed where the unit's settings have them, and images of VIV_IMAGES_DIR are named", async () => {
  const images = await mkdtemp(path.join(tmpdir(), "viv-images-"));
  onTestFinished(() => rm(images, { recursive: true }));
  const settings = {
    VIV_CACHE_DIR: "/nowhere/cache",
    VIV_IMAGES_DIR: images,
    DATABASE_URL: "postgres://h/n",
  };
  host.units = [unitOf("test-unit", { settings })];
  const { err } = await uninstall("--data", "--yes");
  expect(seen.removals[0]?.cacheDirs).toContain("/nowhere/cache");
  expect(err).toContain(`  stays    images: ${images} (VIV_IMAGES_DIR)`);
  expect(err).toContain("nothing else of the service is left");
  expect(err).toContain("the database of DATABASE_URL is as it was");

  host.units = [];
  await writeFile(path.join(dir, "settings.env"), "VIV_CACHE_DIR=/nowhere/kept\n");
  await uninstall("--data", "--yes");
  expect(seen.removals[1]?.cacheDirs).toContain("/nowhere/kept");
  expect(existsSync(dir)).toBe(true);
});

test("the objects of the unit's settings are known, and kept and named where they are outside of the data directory", async () => {
  const outside = await mkdtemp(path.join(tmpdir(), "viv-objects-"));
  onTestFinished(() => rm(outside, { recursive: true }));
  host.units = [unitOf("test-unit", { settings: { VIV_OBJECTS_DIR: outside } })];
  for (const more of [[], ["--data", "--yes"]]) {
    const argv = ["uninstall", "--name", "test-unit", ...more];
    const { err } = await viv("http://127.0.0.1:1", argv, { VIV_OBJECTS_DIR: "/nowhere/of-the-shell" });
    expect(err).toContain(`  stays    files of artifacts: ${outside} (VIV_OBJECTS_DIR)`);
    expect(err).toContain("and not the environment, which has another value of VIV_OBJECTS_DIR");
  }
  expect(seen.removals.map(({ objectsDir }) => objectsDir)).toEqual([outside, outside]);
  host.units = [unitOf("test-unit", { settings: { VIV_OBJECTS: "s3://bucket/v" } })];
  expect((await uninstall()).err).toContain("  stays    files of artifacts: s3://bucket/v (VIV_OBJECTS)");
  host.units = [unitOf("test-unit", {})];
  expect((await uninstall()).err).not.toContain("stays");
  expect(seen.removals.slice(2).map(({ objectsDir }) => objectsDir)).toEqual([
    undefined,
    path.join(dir, "objects"),
  ]);
});

test("only what is gone afterwards is said to be removed; a step that fails in any way is left, and the others run", async () => {
  let isThere = true;
  host.steps = [
    { what: "one that stays silently", isThere: () => true, remove: async () => {} },
    {
      what: "one that cannot be looked for",
      isThere: () => {
        throw new Error("no rights");
      },
      remove: async () => {},
    },
    {
      what: "one that fails",
      isThere: () => true,
      remove: async () => {
        throw new Error("busy");
      },
    },
    {
      what: "one that goes",
      isThere: () => isThere,
      remove: async () => {
        isThere = false;
      },
    },
  ];
  const { code, err } = await uninstall();
  expect(code).toBe(1);
  expect(err.split("\n").filter((line) => line.startsWith("  "))).toEqual([
    "  LEFT     one that stays silently: it is still there",
    "  LEFT     one that cannot be looked for: no rights",
    "  LEFT     one that fails: busy",
    "  removed  one that goes",
  ]);
  expect(err).toContain("something is left; viv uninstall may be repeated");
});
