/** The programs of a kernel, as they are written into a session (in Node). */
import type { FileToWrite } from "../files/files.ts";

const NAMES = ["ask.py", "serve.py", "work.py", "vivarium_display.py"] as const;
type Name = (typeof NAMES)[number];

export interface KernelFiles {
  /** Absolute, in the guest. Named by a hash of the contents, so that versions do not disturb each other. */
  pathOf(name: Name): string;
  files: FileToWrite[];
}

let loaded: Promise<KernelFiles> | undefined;

export function kernelFiles(): Promise<KernelFiles> {
  loaded ??= load();
  return loaded;
}

async function load(): Promise<KernelFiles> {
  const [{ createHash }, { readFile }] = await Promise.all([
    import("node:crypto"),
    import("node:fs/promises"),
  ]);
  const texts = await Promise.all(
    NAMES.map((name) => readFile(new URL(`kernel/${name}`, import.meta.url), "utf8")),
  );
  const version = createHash("sha256").update(texts.join("\0")).digest("hex").slice(0, 12);
  const pathOf = (name: Name) => `/workspace/.vivarium/kernel-${version}/${name}`;
  return { pathOf, files: NAMES.map((name, i) => ({ path: pathOf(name), content: texts[i] ?? "" })) };
}
