import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { tryOpen } from "./try-open.ts";

function folder(): string {
  const dir = mkdtempSync(join(tmpdir(), "try-open-"));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  return dir;
}

test("a file that opens has no failure; one that is missing has a code and no rights", () => {
  const dir = folder();
  writeFileSync(join(dir, "file"), "");
  expect(tryOpen(join(dir, "file"))).toBeUndefined();
  expect(tryOpen(join(dir, "none"))).toEqual({ code: "ENOENT", rights: undefined });
});

test("a refused open names the code, and mode and owner of the file, also to root", () => {
  const file = join(folder(), "file");
  writeFileSync(file, "", { mode: 0o640 });
  const refuse = () => {
    throw Object.assign(new Error("refused"), { code: "EPERM" });
  };
  expect(tryOpen(file, { open: refuse })).toEqual({
    code: "EPERM",
    rights: `0640 of ${process.getuid?.()}:${process.getgid?.()}`,
  });
});
