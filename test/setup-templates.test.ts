/** Set-up's functions that make the official templates, on a checkout with recipes, a builder and a bake of the test's own. */
import { execFileSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { beforeEach, expect, onTestFinished, test } from "vitest";

const ROOT = join(import.meta.dirname, "..");
/** As the real one, it finds the recipe beside itself. */
const BUILD = `#!/bin/sh
here=$(dirname "$0")
echo "$(basename "$here")" >>builds
{ cat "$here/packages.txt" "$here/configure"; ls "$here/files"; } >"$1"`;
/** Makes a baseline as far as set-up looks, except of a size for which there is no memory. */
const BAKE = `#!/bin/sh
while [ $# -gt 0 ]; do
  case $1 in --images-dir) images=$2 ;; --template) name=$2 ;; --version) version=$2 ;; --size) size=$2 ;; esac
  shift
done
[ ! -e "no-$size" ] || exit 1
echo "$name $size" >>bakes
mkdir -p "$images/templates/$name/$version/$size"
echo '"accelerator": "kvm"' >"$images/templates/$name/$version/$size/manifest.json"`;

let folder: string;
let templates: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(join(tmpdir(), "viv templates-")));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  templates = join(folder, "data/pool/images/templates");
  for (const name of ["scripts", "packages"]) symlinkSync(join(ROOT, name), join(folder, name));
  write("images/base/packages.txt", "bash\n");
  write("images/base/configure", "useradd\n");
  write("images/base/files/etc", "");
  write("images/base/build", BUILD);
  write("images/more/added-packages.txt", "python3-numpy\n");
  write("images/more/added-configure", "list fonts\n");
  write("images/more/added-files/opt", "");
  write("images/whole/packages.txt", "buildah\n");
  write("images/whole/configure", "mkdir\n");
  write("images/whole/files/srv", "");
  write("node_modules/.bin/node", BAKE);
  write("bin/qemu-system-x86_64", "#!/bin/sh\necho QEMU emulator version 10.0\n");
  write("bin/debugfs", "#!/bin/sh\n");
  write("data/pool/images/kernel/vmlinuz", "kernel");
  write("data/pool/images/kernel/initramfs.cpio.gz", "initramfs");
});

function write(name: string, text: string): void {
  const file = join(folder, name);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text, { mode: 0o755 });
}

/** Runs set-up's functions as a step does. Throws if they fail. */
function setup(script: string): string {
  const parts = `
    set -euo pipefail
    DATA_DIR=$1/data CACHE_DIR=$1/cache MORE_TEMPLATES="more whole"
    mkdir -p "$CACHE_DIR"
    for part in steps host fingerprint images templates; do . scripts/setup/$part.sh; done
    exec 3>/dev/null
    ${script}`;
  return execFileSync("bash", ["-c", parts, "bash", folder], {
    cwd: folder,
    encoding: "utf8",
    env: { PATH: `${join(folder, "bin")}:${process.env.PATH}`, VIV_CA_BUNDLE: "none" },
    stdio: "pipe",
  });
}

const linesOf = (name: string) => readFileSync(join(folder, name), "utf8").trimEnd().split("\n");
const linked = (name: string, link: string) => readlinkSync(join(templates, name, link));
const diskOf = (name: string) =>
  readFileSync(join(templates, name, linked(name, "next"), "root.ext4"), "utf8");

test("a recipe adds to that of base, or is whole, and base is its own", () => {
  setup("for name in base more whole; do make_next $name; done");
  expect(diskOf("base")).toBe("bash\nuseradd\netc\n");
  expect(diskOf("more")).toBe("bash\npython3-numpy\nuseradd\nlist fonts\netc\nopt\n");
  expect(diskOf("whole")).toBe("buildah\nmkdir\nsrv\n");
  const origin = readFileSync(join(templates, "more", linked("more", "next"), "template.json"), "utf8");
  expect(JSON.parse(origin)).toMatchObject({
    name: "more",
    version: linked("more", "next"),
    category: "more",
  });
});

test("a disk is built once for its recipe; one that adds to base is built again when base changes", () => {
  const makeAll = "for name in base more whole; do make_next $name; done";
  setup(makeAll);
  setup(makeAll);
  expect(linesOf("builds")).toEqual(["base", "more", "whole"]);
  write("images/more/added-packages.txt", "python3-scipy\n");
  setup(makeAll);
  expect(linesOf("builds").slice(3)).toEqual(["more"]);
  write("images/base/packages.txt", "bash\ncurl\n");
  setup(makeAll);
  expect(linesOf("builds").slice(4)).toEqual(["base", "more"]);
});

test("services use a version once all its sizes are baked", () => {
  setup("make_next more; bake_template more small");
  const first = linked("more", "current");
  write("images/more/added-packages.txt", "python3-scipy\n");
  write("no-medium", "");
  expect(() => setup("make_next more; bake_template more small medium")).toThrow();
  expect(linked("more", "current")).toBe(first);
  rmSync(join(folder, "no-medium"));
  setup("bake_template more small medium");
  expect(linked("more", "current")).toBe(linked("more", "next"));
  expect(linked("more", "current")).not.toBe(first);
  expect(linesOf("bakes")).toEqual(["more small", "more small", "more medium"]);
});

test("a renewal takes the disk that is here, without its cache too, and says what is missing", () => {
  setup("make_next more; bake_template more small");
  const first = linked("more", "current");
  const disk = diskOf("more");
  write("bin/qemu-system-x86_64", "#!/bin/sh\necho QEMU emulator version 11.0\n");
  setup("renew_template more; bake_template more small");
  const second = linked("more", "current");
  rmSync(join(folder, "cache"), { recursive: true });
  write("bin/qemu-system-x86_64", "#!/bin/sh\necho QEMU emulator version 12.0\n");
  setup("renew_template more; bake_template more small");
  const third = linked("more", "current");
  expect(new Set([first, second, third]).size).toBe(3);
  expect(diskOf("more")).toBe(disk);
  expect(linesOf("builds")).toEqual(["more"]);
  const origin = (version: string) => {
    const { content_hash, built_at } = JSON.parse(
      readFileSync(join(templates, "more", version, "template.json"), "utf8"),
    );
    return { content_hash, built_at };
  };
  expect(origin(third)).toEqual(origin(first));
  expect(existsSync(join(folder, "cache/renewed"))).toBe(false);
  expect(() => setup("renew_template whole")).toThrow();
  expect(readFileSync(join(folder, "cache/setup.explanation"), "utf8")).toContain(
    "there is no template whole",
  );
  expect(readdirSync(templates)).toEqual(["more"]);
});

test("later set-ups make the templates that are there, and others only where they are asked for", () => {
  expect(setup('wanted_templates ""')).toBe("");
  expect(setup('wanted_templates "whole"')).toBe("whole\n");
  setup("make_next more");
  expect(setup('wanted_templates ""')).toBe("");
  setup("bake_template more small");
  expect(setup('wanted_templates ""')).toBe("more\n");
  expect(setup('wanted_templates "whole"')).toBe("more\nwhole\n");
});

test("templates that are not there need disk space, those that are do not", () => {
  const lackSpace = "free_gib() { echo 5; }; check_template_space";
  setup("make_next more; bake_template more small");
  setup(`${lackSpace} more`);
  expect(() => setup(`${lackSpace} more whole`)).toThrow();
  expect(readFileSync(join(folder, "cache/setup.explanation"), "utf8")).toContain("at least 6 GiB");
});

test("the recipes of data and build add to that of base", () => {
  rmSync(join(folder, "images"), { recursive: true });
  cpSync(join(ROOT, "images"), join(folder, "images"), { recursive: true });
  setup('for name in data build; do write_recipe $name "$1/whole/$name"; done');
  const base = readFileSync(join(ROOT, "images/base/packages.txt"), "utf8");
  for (const [name, own] of [
    ["data", "python3-matplotlib"],
    ["build", "default-jdk-headless"],
  ]) {
    const packages = readFileSync(join(folder, "whole", `${name}`, "packages.txt"), "utf8");
    expect(packages.startsWith(base)).toBe(true);
    expect(packages.split("\n")).toContain(own);
    const configure = readFileSync(join(folder, "whole", `${name}`, "configure"), "utf8");
    expect(configure).toContain("useradd");
    expect(configure).toContain(readFileSync(join(ROOT, "images", `${name}`, "added-configure"), "utf8"));
    const program = readFileSync(join(folder, "whole", `${name}`, "build"), "utf8");
    expect(program).toBe(readFileSync(join(ROOT, "images/base/build"), "utf8"));
  }
});
