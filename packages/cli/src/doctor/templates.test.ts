import { mkdirSync, mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { checkTemplates } from "./templates.ts";

test("official templates that are here are listed, and what makes the others", () => {
  const imagesDir = mkdtempSync(path.join(tmpdir(), "viv-doctor-"));
  onTestFinished(() => rmSync(imagesDir, { recursive: true }));
  const make = (name: string, isBaked = true) => {
    mkdirSync(path.join(imagesDir, "templates", name, "1"), { recursive: true });
    if (isBaked) symlinkSync("1", path.join(imagesDir, "templates", name, "current"));
  };
  make("base");
  make("build", false);
  expect(checkTemplates(imagesDir)).toEqual({
    name: "templates",
    status: "ok",
    found: "base; not set up: data, build, image-builder (sudo ./setup --templates data,build,image-builder)",
  });
  make("data");
  expect(checkTemplates(imagesDir).found).toBe(
    "base, data; not set up: build, image-builder (sudo ./setup --templates build,image-builder)",
  );
  symlinkSync("1", path.join(imagesDir, "templates", "build", "current"));
  make("image-builder");
  expect(checkTemplates(imagesDir).found).toBe("base, data, build, image-builder");
});
