import { mkdir, writeFile } from "node:fs/promises";
import path from "node:path";
import { identify } from "@vivarium/kit/process-identity";
import { expect, test } from "vitest";
import { dir, inOwnDirectories } from "../../test-support/program.ts";
import { requireNoneLeft, requireServed } from "./live-machines.ts";

inOwnDirectories();

test("a machine that lives is a reason against a pause without a service, and against what follows a stop", async () => {
  await requireServed(dir, "uninstall --pause");
  await requireNoneLeft(dir, "Repeat.");
  const folder = path.join(dir, "pool/m/mch_1");
  await mkdir(folder, { recursive: true });
  const entry = { state: "running", process: identify(process.pid) };
  await writeFile(path.join(folder, "machine.json"), JSON.stringify(entry));
  await expect(requireServed(dir, "uninstall --pause")).rejects.toMatchObject({
    message: `1 session is live, and no service runs for ${dir} to pause or end them`,
    hint: expect.stringContaining("repeat viv uninstall --pause"),
  });
  await expect(requireNoneLeft(dir, "Repeat.")).rejects.toMatchObject({
    message: `the service has stopped, and 1 session is still live in ${dir}`,
    hint: expect.stringContaining("The machines run on"),
  });
});
