import { spawn } from "node:child_process";
import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { identify, isAlive } from "@vivarium/kit/process-identity";
import { expect, onTestFinished, test } from "vitest";
import { dir, inOwnDirectories, viv } from "../../test-support/program.ts";
import { layoutOf } from "../supervisor/layout.ts";

inOwnDirectories();

test.each([["alone"], ["with --pause", "--pause"], ["with --sessions", "--sessions"]])(
  "down %s ends no command that has the data directory, and names it",
  async (_how, ...options: string[]) => {
    const child = spawn("sleep", ["60"]);
    onTestFinished(() => void child.kill("SIGKILL"));
    const identity = identify(child.pid ?? 0);
    if (!identity) throw new Error("the child has not started");
    const { lockFile } = layoutOf(dir);
    await mkdir(path.dirname(lockFile));
    await writeFile(lockFile, JSON.stringify({ ...identity, url: "viv backup", command: "viv backup" }));
    const { code, err } = await viv("http://127.0.0.1:1", ["down", "--data-dir", dir, ...options]);
    expect({ code, err }).toEqual({
      code: 1,
      err: expect.stringContaining(`viv backup (pid ${identity.pid}) is at work on ${dir}`),
    });
    expect(isAlive(identity)).toBe(true);
  },
);
