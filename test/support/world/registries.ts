/** Makes one small package of each kind (pip, npm, git and others) and serves it in the world. */
import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { World } from "./world.ts";

export const REGISTRIES = { pip: "pip.example.com", npm: "npm.example.com", git: "git.example.com" } as const;
/** Text that each package prints. */
export const GREETING = "hello from a package";

export function fillRegistries(world: World): void {
  const work = mkdtempSync(join(tmpdir(), "viv-registries-"));
  try {
    fillPip(world.folderOf(REGISTRIES.pip), work);
    fillNpm(world.folderOf(REGISTRIES.npm), work);
    fillGit(world.folderOf(REGISTRIES.git), work);
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** Serves the packages of pip and npm under one address without TLS, as a company's mirror does. */
export function fillMirror(world: World, { name, port }: { name: string; port: number }): void {
  const work = mkdtempSync(join(tmpdir(), "viv-mirror-"));
  try {
    fillPip(world.folderOf(name), work);
    fillNpm(world.folderOf(name), work, `http://${name}:${port}`);
  } finally {
    rmSync(work, { recursive: true });
  }
}

/** Serves one package of npm under its registry's name, as the world's stand-in of that registry. */
export function fillNpmRegistry(world: World, registry: { host: string; name: string }): void {
  const work = mkdtempSync(join(tmpdir(), "viv-npm-"));
  try {
    fillNpm(world.folderOf(registry.host), work, `https://${registry.host}`, registry.name);
  } finally {
    rmSync(work, { recursive: true });
  }
}

const WHEEL = "greeting-1.0.0-py3-none-any.whl";

function fillPip(folder: string, work: string): void {
  const info = "greeting-1.0.0.dist-info";
  const files = {
    "greeting.py": `text = "${GREETING}"\n`,
    [`${info}/METADATA`]: "Metadata-Version: 2.1\nName: greeting\nVersion: 1.0.0\n",
    [`${info}/WHEEL`]: "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    [`${info}/RECORD`]: `greeting.py,,\n${info}/METADATA,,\n${info}/WHEEL,,\n${info}/RECORD,,\n`,
  };
  const index = join(folder, "simple/greeting");
  mkdirSync(index, { recursive: true });
  mkdirSync(join(work, info));
  for (const [name, text] of Object.entries(files)) writeFileSync(join(work, name), text);
  const program =
    "import sys, zipfile\nwith zipfile.ZipFile(sys.argv[1], 'w') as z:\n for n in sys.argv[2:]: z.write(n)";
  const argv = ["-c", program, join(index, WHEEL), ...Object.keys(files)];
  execFileSync("python3", argv, { cwd: work });
  writeFileSync(join(index, "index.html"), `<!doctype html><a href="${WHEEL}">${WHEEL}</a>`);
}

function fillNpm(folder: string, work: string, base = `https://${REGISTRIES.npm}`, name = "greeting"): void {
  const version = "1.0.0";
  mkdirSync(join(work, "package"));
  const manifest = { name, version, main: "index.js" };
  writeFileSync(join(work, "package/package.json"), JSON.stringify(manifest));
  writeFileSync(join(work, "package/index.js"), `module.exports = "${GREETING}";\n`);
  const tarball = join(folder, `tarballs/${name}-${version}.tgz`);
  mkdirSync(join(folder, "tarballs"));
  execFileSync("tar", ["-czf", tarball, "package"], { cwd: work });
  const integrity = `sha512-${createHash("sha512").update(readFileSync(tarball)).digest("base64")}`;
  const dist = { tarball: `${base}/tarballs/${name}-${version}.tgz`, integrity };
  const versions = { [version]: { ...manifest, dist } };
  writeFileSync(join(folder, name), JSON.stringify({ name, "dist-tags": { latest: version }, versions }));
}

/** Makes a git repository of plain files, which any web server can serve. */
function fillGit(folder: string, work: string): void {
  const checkout = join(work, "checkout");
  const git = (...args: string[]) =>
    execFileSync("git", ["-c", "user.name=Test", "-c", "user.email=test@example.com", ...args], {
      cwd: work,
      stdio: "pipe",
    });
  git("init", "--quiet", checkout);
  writeFileSync(join(checkout, "greeting"), GREETING);
  git("-C", checkout, "add", "greeting");
  git("-C", checkout, "commit", "--quiet", "-m", "A greeting");
  const bare = join(folder, "greeting.git");
  git("clone", "--quiet", "--bare", checkout, bare);
  git("-C", bare, "update-server-info");
}
