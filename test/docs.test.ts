import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { glob, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { CheckpointStart, SessionCreate } from "@vivarium/contract/api";
import { beforeAll, expect, test } from "vitest";

const ROOT = join(import.meta.dirname, "..");
/** A file or folder of the repository, or the tail of one: `guest/agent`, `sessions/sweep.ts`, `sweep.ts`. */
const NAMES = /^(packages|guest|images|test|scripts|docs)\/[\w./-]+$|^[\w./-]+\.(ts|rs)$/;
/** What the section's headings say, and folders whose files the map itself is about. */
const TOPS = /^(packages\/\w+\/src|guest\/\w+\/(src|tests)|test|scripts)$/;
let pages: { path: string; text: string }[] = [];
let files: string[] = [];

beforeAll(async () => {
  const paths = await Array.fromAsync(glob(["*.md", "docs/**/*.md"], { cwd: ROOT }));
  pages = await Promise.all(
    paths.map(async (path) => ({ path, text: await readFile(join(ROOT, path), "utf8") })),
  );
  files = await Array.fromAsync(
    glob(["packages/*/{src,test-support}/**", "guest/{agent,ssh,search}/**", "test/**", "scripts/**"], {
      cwd: ROOT,
    }),
  );
});

test("every file that a page names exists", () => {
  const named = pages.flatMap(({ path, text }) =>
    [...text.matchAll(/`([^`\s]+)`/g)]
      .map((match) => match[1] ?? "")
      .filter((name) => NAMES.test(name))
      .map((name) => ({ path, name })),
  );
  expect(named.length).toBeGreaterThan(50);
  expect(named.filter(({ name }) => !isThere(name))).toEqual([]);
});

test("every folder of sources is a room that the architecture names", () => {
  const text = pages.find(({ path }) => path === "ARCHITECTURE.md")?.text ?? "";
  const [, rooms = ""] = text.split("\n## Rooms\n");
  const named = [...(rooms.split("\n## ")[0] ?? "").matchAll(/`([^`\s]+)`/g)].map((match) => match[1] ?? "");
  const folders = new Set(files.filter((file) => /\.(ts|rs)$/.test(file)).map((file) => dirname(file)));
  expect(folders.size).toBeGreaterThan(50);
  const isNamed = (folder: string) => named.some((name) => folder === name || folder.endsWith(`/${name}`));
  const rest = [...folders].filter((folder) => !TOPS.test(folder) && !isNamed(folder));
  expect(rest).toEqual([]);
});

test("every link inside the repository leads somewhere", () => {
  const links = pages.flatMap(({ path, text }) =>
    [...text.matchAll(/\]\(([^)\s]+)\)/g)]
      .map((match) => match[1] ?? "")
      .filter((target) => !/^https?:/.test(target))
      .map((target) => ({ path, target })),
  );
  expect(links.length).toBeGreaterThan(20);
  expect(links.filter(({ path, target }) => !leadsSomewhere(path, target))).toEqual([]);
});

test("the printed tables say what the contract says", async () => {
  const script = join(ROOT, "scripts/write-docs-tables.ts");
  await promisify(execFile)(process.execPath, [script, "--check"]);
});

test("the pages name every field that a start from a checkpoint passes over, and no other", () => {
  const taken = new Set(["from_checkpoint", ...Object.keys(CheckpointStart.shape)]);
  const ignored = Object.keys(SessionCreate.shape).filter((field) => !taken.has(field));
  const page = (path: string) => pages.find((one) => one.path === path)?.text ?? "";
  const [, readme = ""] = /passes over (.*?)\(\[saved state\]/s.exec(page("README.md")) ?? [];
  const guide = page("docs/guide/saved-state.md").split("\n");
  const rows = guide.filter((line) => /^\|.*\| ignored/.test(line)).map((line) => line.split("|")[1] ?? "");
  for (const text of [readme, rows.join()])
    expect([...text.matchAll(/`(\w+)`/g)].map(([, field]) => field).toSorted()).toEqual(ignored.toSorted());
});

function isThere(name: string): boolean {
  return existsSync(join(ROOT, name)) || files.some((file) => file.endsWith(`/${name}`));
}

function leadsSomewhere(path: string, target: string): boolean {
  const [file = "", anchor] = target.split("#");
  const found = file === "" ? path : join(dirname(path), file);
  if (anchor === undefined) return existsSync(join(ROOT, found));
  const text = pages.find((page) => page.path === found)?.text ?? "";
  return [...text.matchAll(/^#+ (.+)$/gm)].some((heading) => slug(heading[1] ?? "") === anchor);
}

/** The anchor of a heading, as code hosts make it. */
function slug(heading: string): string {
  return heading
    .toLowerCase()
    .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
    .replaceAll(" ", "-");
}
