/** `viv version` on a host with a unit, in mounts of its own. */
import { execFile } from "node:child_process";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import path from "node:path";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { serviceUnit } from "../install/unit-text.ts";
import { writeJournal } from "../update/journal.ts";

inOwnDirectories();

const MAIN = path.join(import.meta.dirname, "../main.ts");
const COPY = "/usr/local/lib/vivarium/vivarium/first";
const UNIT = { unit: "[Service]\n", settings: undefined };

/** Runs `viv version` where systemd has a unit whose copies and journal are those of the folder. */
async function versionWith(journal: string | undefined): Promise<{ out: string; json: unknown }> {
  const copies = path.join(dir, "copies");
  await mkdir(path.join(copies, "first"), { recursive: true });
  await writeFile(
    path.join(copies, "first/copy.json"),
    JSON.stringify({ version: "0.1.0+first", made_at: "2026-11-27T10:00:00Z" }),
  );
  if (journal !== undefined) await writeFile(path.join(copies, "update.json"), journal);
  const places = { settingsFile: "/etc/vivarium/vivarium.env", journalFile: "/update.json" };
  const unit = serviceUnit({ name: "vivarium", copy: COPY, dataDir: dir, ...places, systemd: 254 });
  await writeFile(path.join(dir, "vivarium.service"), unit);
  const script = `mount -t tmpfs tmpfs /usr/local/lib
    mkdir -p /usr/local/lib/vivarium/vivarium
    mount --bind "$0/copies" /usr/local/lib/vivarium/vivarium
    mount -t tmpfs tmpfs /etc
    mkdir -p /etc/systemd/system
    cp "$0/vivarium.service" /etc/systemd/system
    "$@"; "$@" --json`;
  const argv = ["--map-root-user", "--mount", "sh", "-ec", script, dir, process.execPath, MAIN, "version"];
  // No service answers there.
  const env = { PATH: process.env.PATH, HOME: dir, VIV_DATA_DIR: dir, VIV_URL: "http://127.0.0.1:9" };
  const { stdout } = await promisify(execFile)("unshare", argv, { env });
  const start = stdout.indexOf("\n{") + 1;
  return { out: stdout.slice(0, start), json: JSON.parse(stdout.slice(start)) };
}

test("a unit is shown with its copy, and without an update", async () => {
  const { out, json } = await versionWith(undefined);
  expect(json).toMatchObject({ unit: { name: "vivarium", copy: { path: COPY, version: "0.1.0+first" } } });
  expect(json).not.toHaveProperty("unit.unfinished_update");
  expect(out).not.toContain("not finished");
});

test("an update that is not finished is named", async () => {
  const file = path.join(dir, "update.json");
  await writeJournal(file, {
    ...{ format: 1, phase: "starting", unit: "vivarium", dataDir: dir, since: "2026-11-27T10:00:00Z" },
    ...{ before: UNIT, after: { ...UNIT, version: "0.2.0+second", copy: "/second", isNew: true } },
  });
  const { out, json } = await versionWith(await readFile(file, "utf8"));
  expect(json).toMatchObject({ unit: { unfinished_update: "0.2.0+second" } });
  expect(out).toContain("An update to 0.2.0+second is not finished");
});

test.each(['{"format":1,', "", "null"])(
  "an update whose journal is damaged hides only its version: %j",
  async (journal) => {
    const { out, json } = await versionWith(journal);
    const version = "a version that its damaged journal hides";
    expect(json).toMatchObject({
      unit: { name: "vivarium", copy: { path: COPY }, unfinished_update: version },
    });
    expect(out).toContain(`An update to ${version} is not finished`);
  },
);
