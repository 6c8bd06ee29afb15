/** Loads the Python programs of a kernel, which are written into a session (in Node). */
import type { FileToWrite } from "../files/files.ts";

const NAMES = ["ask.py", "serve.py", "work.py", "vivarium_display.py"] as const;

let loaded: ReturnType<typeof load> | undefined;

export function kernelFiles() {
  loaded ??= load();
  return loaded;
}

async function load() {
  const [{ createHash }, { readFile }] = await Promise.all([
    import("node:crypto"),
    import("node:fs/promises"),
  ]);
  const texts = await Promise.all(
    NAMES.map((name) => readFile(new URL(`kernel/${name}`, import.meta.url), "utf8")),
  );
  const version = createHash("sha256").update(texts.join("\0")).digest("hex").slice(0, 12);
  // The folder is named by a hash of the programs, so that versions of this package do not overwrite each other's.
  const pathOf = (name: (typeof NAMES)[number]) => `/workspace/.vivarium/kernel-${version}/${name}`;
  const files: FileToWrite[] = NAMES.map((name, i) => ({ path: pathOf(name), content: texts[i] ?? "" }));
  return { pathOf, files };
}
