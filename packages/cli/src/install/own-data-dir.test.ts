import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { requireOwnDataDir } from "./own-data-dir.ts";

inOwnDirectories();

const other = () => path.join(dir, "other");

async function write(name: string, text = ""): Promise<void> {
  const file = path.join(other(), name);
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, text);
}

test("a directory that only has names as the service's is refused with them", async () => {
  await write("log/a");
  await write("run/b");
  await write("settings.env", "COLOUR=red\n");
  await expect(requireOwnDataDir(other())).rejects.toMatchObject({
    message: `${other()} is no data directory of the service; nothing was changed`,
    hint: expect.stringMatching(/It has .*log.*setup\.stamp/),
  });
});

test.each([
  ["set-up", "setup.stamp", "1"],
  ["control", "control/pepper", "x"],
  ["a supervisor", "run/supervisor.lock", '{"pid":7,"startTicks":9,"bootId":"b"}'],
  ["an uninstall without --data", "settings.env", "# Settings of vivarium.service. A change counts after\n"],
])("a directory is the service's by the file of %s", async (_who, name, text) => {
  await write("log/a");
  await write(name, text);
  await requireOwnDataDir(other());
});

test("a directory with nothing of the service, or none, is no reason against the rest of an uninstall", async () => {
  await requireOwnDataDir(other());
  await write("notes.txt");
  await requireOwnDataDir(other());
});
