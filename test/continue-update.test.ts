/** `scripts/continue-update`, which a unit runs before it starts, with stand-ins for the programs of systemd. */
import { execFile } from "node:child_process";
import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";

const SCRIPT = join(import.meta.dirname, "../scripts/continue-update");
const ROOT = join(import.meta.dirname, "..");

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(join(tmpdir(), "continue-update-"));
});
afterEach(() => rm(folder, { recursive: true, force: true }));

/** A program that writes down its arguments, and ends with a code. */
async function standIn(name: string, code: number): Promise<void> {
  const file = join(folder, name);
  await writeFile(file, `#!/bin/sh\necho "${name} $*" >> "${folder}/calls"\nexit ${code}\n`);
  await chmod(file, 0o755);
}

/** Runs the script where `systemctl` and `systemd-run` end with these codes. */
async function run(codes: {
  systemctl: number;
  systemdRun?: number;
}): Promise<{ code: unknown; calls: string[] }> {
  await standIn("systemctl", codes.systemctl);
  await standIn("systemd-run", codes.systemdRun ?? 0);
  const env = { PATH: `${folder}:${process.env.PATH}` };
  const code = await new Promise((resolve) =>
    execFile(SCRIPT, [join(folder, "update.json"), "viv-two"], { env }, (error) => resolve(error?.code ?? 0)),
  );
  const calls = await readFile(join(folder, "calls"), "utf8").catch(() => "");
  return { code, calls: calls.split("\n").filter(Boolean) };
}

const ASKED = "systemctl is-active --quiet viv-two-update.service";

test("nothing is started without a journal", async () => {
  expect(await run({ systemctl: 3 })).toEqual({ code: 0, calls: [] });
});

test("nothing is started beside an update that runs or waits", async () => {
  await writeFile(join(folder, "update.json"), "{}");
  expect(await run({ systemctl: 0 })).toEqual({ code: 0, calls: [ASKED] });
});

// 3: not active; 4: systemd knows no such unit.
test.each([3, 4])(
  "an update that was interrupted is continued as a unit of its own (%i)",
  async (systemctl) => {
    await writeFile(join(folder, "update.json"), "{}");
    const node = `${ROOT}/scripts/../node_modules/.bin/node ${ROOT}/scripts/../packages/cli/src/main.ts`;
    const started = `--unit=viv-two-update --description=Update of viv-two.service ${node} continue-update --name viv-two`;
    expect(await run({ systemctl })).toEqual({
      code: 0,
      calls: [ASKED, `systemd-run --quiet --collect ${started}`],
    });
  },
);

test("an update that cannot be started is a failure that systemd logs", async () => {
  await writeFile(join(folder, "update.json"), "{}");
  expect((await run({ systemctl: 3, systemdRun: 1 })).code).toBe(1);
});
