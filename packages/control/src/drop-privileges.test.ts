import { execFile } from "node:child_process";
import { linkSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";

const ENTER = `
const { enterControlDir } = await import(process.argv[1]);
await enterControlDir(process.argv[2], "nobody");
console.log(process.getuid());`;

test("control's folder becomes its user's with its files, and nothing that is linked there does", async () => {
  const root = mkdtempSync(path.join(tmpdir(), "viv-control-dir-"));
  onTestFinished(() => rmSync(root, { recursive: true }));
  const dir = path.join(root, "control");
  mkdirSync(dir);
  for (const name of ["linked", "hard-linked", "control/bootstrap.key"])
    writeFileSync(path.join(root, name), "");
  symlinkSync(path.join(root, "linked"), path.join(dir, "symbolic"));
  linkSync(path.join(root, "hard-linked"), path.join(dir, "hard"));

  const module = path.join(import.meta.dirname, "drop-privileges.ts");
  const argv = ["--input-type=module", "-e", ENTER, module, dir];
  const { stdout } = await promisify(execFile)(process.execPath, argv);

  const nobody = Number(stdout);
  expect(nobody).toBeGreaterThan(0);
  const owners = ["control", "control/bootstrap.key", "linked", "hard-linked"].map(
    (name) => statSync(path.join(root, name)).uid,
  );
  expect(owners).toEqual([nobody, nobody, 0, 0]);
});
