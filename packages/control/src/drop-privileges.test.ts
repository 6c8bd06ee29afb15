import { execFile } from "node:child_process";
import {
  chmodSync,
  linkSync,
  mkdirSync,
  mkdtempSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";

const ENTER = `
const { enterControlDir } = await import(process.argv[1]);
await enterControlDir(process.argv[2], "nobody", process.argv[3]);
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

test("a store of objects that an uninstall made root's becomes its user's again, and nothing else beside it", async () => {
  const root = mkdtempSync(path.join(tmpdir(), "viv-control-dir-"));
  onTestFinished(() => rmSync(root, { recursive: true }));
  const store = path.join(root, "store");
  const files = ["objects/org_a/x@", "incoming/y", "uploads/z/1", "notes"];
  for (const file of files) {
    mkdirSync(path.dirname(path.join(store, file)), { recursive: true });
    writeFileSync(path.join(store, file), "");
  }
  writeFileSync(path.join(root, "of-root"), "");
  linkSync(path.join(root, "of-root"), path.join(store, "objects/hard@"));
  symlinkSync(path.join(root, "of-root"), path.join(store, "objects/symbolic@"));
  // The user passes through to its folder.
  chmodSync(root, 0o755);
  const module = path.join(import.meta.dirname, "drop-privileges.ts");
  const argv = ["--input-type=module", "-e", ENTER, module, path.join(root, "control"), store];
  const nobody = Number((await promisify(execFile)(process.execPath, argv)).stdout);
  const ownerOf = (name: string) => statSync(path.join(root, name)).uid;
  expect(
    ["store", "store/objects/org_a", ...files.map((file) => `store/${file}`), "of-root"].map(ownerOf),
  ).toEqual([nobody, nobody, nobody, nobody, nobody, 0, 0]);
});
