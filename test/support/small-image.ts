/** A small image that boots and runs programs: a shell and some tools of this host, with the libraries that they need. */
import { execFileSync } from "node:child_process";
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type MadeImage, makeImage } from "../../packages/oci/test-support/image.ts";
import { tarOf } from "../../packages/oci/test-support/real-registry.ts";

const TOOLS = ["dash", "cat", "env", "id", "ls", "mkdir", "sleep"];

/** The program's configuration, and a line in /srv/hello that says which image it is. */
export function makeSmallImage(name: string, run: object = {}): MadeImage {
  const putHello = (upper: string) => {
    mkdirSync(join(upper, "srv"), { recursive: true });
    writeFileSync(join(upper, "srv/hello"), `hello from ${name}\n`);
    writeFileSync(join(upper, "srv/.wh.old"), "");
  };
  return makeImageOf([putTools, putHello], run);
}

/** An image with a layer of each folder, which is filled by the function of the layer. */
export function makeImageOf(fills: readonly ((root: string) => void)[], run: object = {}): MadeImage {
  const folder = mkdtempSync(join(tmpdir(), "image-"));
  try {
    const layers = fills.map((fill, number) => {
      const root = join(folder, String(number));
      mkdirSync(root);
      fill(root);
      return tarOf(root);
    });
    return makeImage({
      isIndexed: false,
      layers: layers.map(({ compressed }) => compressed),
      config: {
        config: { Env: ["PATH=/usr/bin:/bin"], ...run },
        rootfs: { type: "layers", diff_ids: layers.map(({ diffId }) => diffId) },
      },
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** A shell and some tools below a directory, which becomes the root of a machine. */
export function putTools(root: string): void {
  for (const folder of ["usr/bin", "usr/lib", "usr/lib64", "etc", "srv"])
    mkdirSync(join(root, folder), { recursive: true });
  for (const name of ["bin", "lib", "lib64"]) symlinkSync(`usr/${name}`, join(root, name));
  writeFileSync(join(root, "etc/os-release"), "ID=small\n");
  writeFileSync(join(root, "srv/old"), "removed by the layer above");
  for (const tool of TOOLS) putTool(root, tool);
  symlinkSync("dash", join(root, "usr/bin/sh"));
}

/** A program of this host with its libraries, in an image in which /lib and /lib64 are links. */
export function putTool(root: string, tool: string): void {
  const program = realpathSync(execFileSync("which", [tool], { encoding: "utf8" }).trim());
  copyFileSync(program, join(root, "usr/bin", tool));
  for (const library of librariesOf(program)) putLibrary(root, library);
}

function librariesOf(program: string): string[] {
  const said = execFileSync("ldd", [program], { encoding: "utf8" });
  return [...said.matchAll(/(\/\S+) \(0x/g)].map(([, path = ""]) => path);
}

/** At the path that the loader looks at. */
function putLibrary(root: string, library: string): void {
  const target = join(root, library.replace(/^\/(?=lib)/, "/usr/"));
  if (existsSync(target)) return;
  mkdirSync(dirname(target), { recursive: true });
  copyFileSync(realpathSync(library), target);
}
