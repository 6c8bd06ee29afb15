import { renameSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { expect, test } from "vitest";
import { dir, inOwnDirectories, viv } from "../../test-support/program.ts";
import { layoutOf } from "./layout.ts";
import { takeForCommand, takeLock } from "./lock.ts";
import { takeLockAfterCommands } from "./wait-for-lock.ts";

inOwnDirectories();

const url = "http://127.0.0.1:1";

const waiting = (notes: string[] = []) => ({
  dataDir: dir,
  lockFile: path.join(dir, "supervisor.lock"),
  url,
  note: (line: string) => void notes.push(line),
});

test("a command that has the lock is named once, and a service gets the lock after it", async () => {
  const notes: string[] = [];
  const command = await takeForCommand(waiting().lockFile, "viv backup");
  const taken = takeLockAfterCommands({
    ...waiting(),
    note: (line) => {
      notes.push(line);
      setTimeout(() => "release" in command && void command.release(), 500);
    },
  });
  expect(await taken).toHaveProperty("release");
  expect(notes).toEqual([
    `viv: viv backup (pid ${process.pid}) is at work on ${dir}: the service starts when it has ended, waiting up to 10 minutes`,
  ]);
});

test("another service that has the lock is not waited for", async () => {
  const notes: string[] = [];
  await takeLock(waiting().lockFile, url);
  expect(await takeLockAfterCommands(waiting(notes))).toMatchObject({ holder: { pid: process.pid, url } });
  expect(notes).toEqual([]);
});

test("a command that does not end fails the start with a code after which the unit tries again", async () => {
  await takeForCommand(waiting().lockFile, "viv restore-backup");
  const error = await takeLockAfterCommands({ ...waiting(), limitMs: 0 }).catch((thrown: unknown) => thrown);
  expect(error).toMatchObject({
    message: expect.stringContaining(`viv restore-backup (pid ${process.pid}) is still at work on ${dir}`),
    // The default of the verb: 1.
    exitCode: undefined,
  });
});

test("viv up waits for a command that has the data directory, and ends with 75 only for a service", async () => {
  const { lockFile } = layoutOf(dir);
  await mkdir(path.dirname(lockFile));
  await takeLock(`${lockFile}.service`, url);
  await takeForCommand(lockFile, "viv backup");
  const notes: string[] = [];
  // The service takes the place of the command as soon as the start waits.
  const onNote = (line: string) => {
    notes.push(line);
    if (notes.length === 1) renameSync(`${lockFile}.service`, lockFile);
  };
  const { code } = await viv(url, ["up", "--data-dir", dir], {}, { onNote });
  expect({ code, notes }).toEqual({
    code: 75,
    notes: [
      expect.stringContaining(`viv backup (pid ${process.pid}) is at work on ${dir}`),
      `viv: a service (pid ${process.pid}) already serves ${dir} at ${url}`,
    ],
  });
});
