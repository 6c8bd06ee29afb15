import { execFile } from "node:child_process";
import { existsSync, statSync } from "node:fs";
import { glob, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { CheckpointStart, SessionCreate } from "@vivarium/contract/api";
import { beforeAll, expect, test } from "vitest";
import { missingPages, NAMING_NO_PAGE, NAMING_ONLY_PAGES } from "./support/named-pages.ts";

const ROOT = join(import.meta.dirname, "..");
/** A file or folder of the repository, or the tail of one: `guest/agent`, `sessions/sweep.ts`, `sweep.ts`. */
const NAMES = /^(packages|guest|images|test|scripts|docs)\/[\w./-]+$|^[\w./-]+\.(ts|rs)$/;
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

test("every page that a comment or another page names exists", async () => {
  const folders = ["packages/*/{src,test-support}", "guest/{src,tests,try}", "test", "scripts"];
  const sources = await Array.fromAsync(
    glob([...folders.map((folder) => `${folder}/**`), "guest/*.md"], { cwd: ROOT }),
  );
  expect(sources.length).toBeGreaterThan(500);
  const read = sources
    .filter(isFile)
    .map(async (path) => ({ path, text: await readFile(join(ROOT, path), "utf8") }));
  const all = [...pages, ...(await Promise.all(read))];
  expect(all.flatMap((source) => missingPages(source, ROOT))).toEqual([]);
});

test("a page that is not there would be noticed, and no other", () => {
  for (const source of NAMING_NO_PAGE) expect(missingPages(source, ROOT)).toHaveLength(1);
  for (const source of NAMING_ONLY_PAGES) expect(missingPages(source, ROOT)).toEqual([]);
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

test.each(["write-docs-tables.ts", "write-rooms.ts"])("pages say what %s prints", async (script) => {
  await promisify(execFile)(process.execPath, [join(ROOT, "scripts", script), "--check"]);
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

function isFile(path: string): boolean {
  return statSync(join(ROOT, path)).isFile();
}

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
