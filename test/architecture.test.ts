import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { importsOf, SOURCE_RULES, type Source } from "./support/source-rules.ts";

const ROOT = join(import.meta.dirname, "..");

interface Manifest {
  name: string;
  exports?: Record<string, string>;
  dependencies?: Record<string, string>;
}

let sources: Source[] = [];
let manifests: { dir: string; manifest: Manifest }[] = [];

beforeAll(async () => {
  sources = await Promise.all(
    (await Array.fromAsync(glob("packages/*/{src,test-support}/**/*.ts", { cwd: ROOT }))).map(
      async (path) => ({
        path,
        text: await readFile(join(ROOT, path), "utf8"),
      }),
    ),
  );
  manifests = await Promise.all(
    (await Array.fromAsync(glob("packages/*/package.json", { cwd: ROOT }))).map(async (path) => ({
      dir: path.replace("/package.json", ""),
      manifest: JSON.parse(await readFile(join(ROOT, path), "utf8")) as Manifest,
    })),
  );
});

describe.each(SOURCE_RULES)("$title", (rule) => {
  test("holds in every source file", () => {
    expect(sources.length).toBeGreaterThan(20);
    expect(sources.flatMap((source) => rule.check(source))).toEqual([]);
  });

  test("would be noticed if it were broken", () => {
    for (const offender of rule.offenders) expect(rule.check(offender)).not.toEqual([]);
  });
});

describe("manifests", () => {
  test("declare every package of ours that the sources import", () => {
    const missing = sources.flatMap(({ path, text }) => {
      const own = manifests.find(({ dir }) => path.startsWith(`${dir}/`));
      return importsOf(text)
        .map(({ from }) => from.split("/").slice(0, 2).join("/"))
        .filter((name) => name.startsWith("@vivarium/") && name !== own?.manifest.name)
        .filter(
          (name) => !path.endsWith(".test.ts") && !Object.hasOwn(own?.manifest.dependencies ?? {}, name),
        )
        .map((name) => `${path} imports ${name}`);
    });
    expect(missing).toEqual([]);
  });

  test("export what others import, and nothing is imported around them", () => {
    const around = sources.flatMap(({ path, text }) =>
      importsOf(text)
        .filter(({ from }) => from.startsWith("@vivarium/") && !isExported(from))
        .map(({ from }) => `${path} imports ${from}`),
    );
    expect(around).toEqual([]);
    expect(isExported("@vivarium/contract/src/api/errors.ts")).toBe(false);
  });
});

function isExported(specifier: string): boolean {
  const [scope, name, ...rest] = specifier.split("/");
  const entry = rest.length === 0 ? "." : `./${rest.join("/")}`;
  const exports = manifests.find(({ manifest }) => manifest.name === `${scope}/${name}`)?.manifest.exports;
  return Object.keys(exports ?? {}).some((key) => {
    if (!key.endsWith("*")) return key === entry;
    const tail = entry.slice(key.length - 1);
    return entry.startsWith(key.slice(0, -1)) && !tail.includes("/");
  });
}
