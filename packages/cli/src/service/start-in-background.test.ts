import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { dir, serve, viv } from "../program.test-support.ts";
import { takeLock } from "../supervisor/lock.ts";

test("whoever asks at a wrong address is told where the service of the data directory is", async () => {
  const { url } = await serve(() => {});
  await mkdir(path.join(dir, "run"));
  const lock = await takeLock(path.join(dir, "run", "supervisor.lock"), url);
  onTestFinished(async () => void ("release" in lock && (await lock.release())));
  const file = path.join(dir, "a.py");
  await writeFile(file, "");
  const nobody = "http://127.0.0.1:9";
  expect(await viv(nobody, ["run", file])).toMatchObject({
    code: 125,
    err: expect.stringContaining(`answers at ${url}, not at ${nobody}`),
  });
});
