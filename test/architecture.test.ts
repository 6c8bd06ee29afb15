import { readFileSync } from "node:fs";
import { glob, readFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, describe, expect, test } from "vitest";
import { columnOwners, cyclesAmong, FLOOR_RULES, secondWriters } from "./support/floor-rules.ts";
import { bannedWords } from "./support/plain-words.ts";
import { importsOf, SOURCE_RULES, type Source } from "./support/source-rules.ts";

const ROOT = join(import.meta.dirname, "..");

interface Manifest {
  name: string;
  exports?: Record<string, string>;
  dependencies?: Record<string, string>;
  devDependencies?: Record<string, string>;
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

describe.each([...SOURCE_RULES, ...FLOOR_RULES])("$title", (rule) => {
  test("holds in every source file", () => {
    expect(sources.length).toBeGreaterThan(20);
    expect(sources.flatMap((source) => rule.check(source))).toEqual([]);
  });

  test("would be noticed if it were broken", () => {
    for (const offender of rule.offenders) expect(rule.check(offender)).not.toEqual([]);
  });
});

describe("columns of sessions", () => {
  const owners = () =>
    columnOwners(sources.find(({ path }) => path.endsWith("control/src/db/tables.ts"))?.text ?? "");

  test("are written by the room that owns them alone", () => {
    const schema = readFileSync(join(ROOT, "packages/control/src/db/schema.sql"), "utf8");
    const [, body = ""] = /create table [\w."]*sessions"? \(\n([\s\S]*?)\n\);/i.exec(schema) ?? [];
    const columns = [...body.matchAll(/^ +(?!constraint)"?(\w+)"? /gim)].map(([, name]) => name);
    expect([...owners().keys()].toSorted()).toEqual(columns.toSorted());
    expect(sources.flatMap((source) => secondWriters(source, owners()))).toEqual([]);
  });

  test.each([
    `db.updateTable("sessions").set({ op: null }).execute();`,
    `db.updateTable("sessions").set({ ...(isDue && { due_at: now }) }).execute();`,
    "sql`update sessions set exposed = null where id = 1`",
    "export function ownColumns() {\n  return { destroy_after: null };\n}",
    "export const DUE = sql`due_at = now()`;",
  ])("are seen to be written by another one: %s", (text) => {
    expect(secondWriters({ path: "packages/control/src/terminals/store.ts", text }, owners())).not.toEqual(
      [],
    );
  });
});

describe("files", () => {
  test("do not import each other in a circle", () => {
    expect(cyclesAmong(sources.filter(({ path }) => !path.includes("/test-support/")))).toEqual([]);
  });

  test("are seen to, should they do so", () => {
    const circle = [
      { path: "packages/node/src/a.ts", text: `import { b } from "./b.ts";` },
      { path: "packages/node/src/b.ts", text: `export { c } from "./room/c.ts";` },
      { path: "packages/node/src/room/c.ts", text: `import { a } from "../a.ts";` },
    ];
    expect(cyclesAmong(circle)).toHaveLength(1);
    expect(cyclesAmong(circle.slice(1))).toEqual([]);
  });
});

describe("words", () => {
  /** These files are about rooms and banned words. */
  const ABOUT_WORDS =
    /^test\/(architecture\.test|support\/(plain-words|floor-rules|source-rules))\.ts$|^scripts\/write-rooms\.ts$/;

  test("of comments, names and titles of tests are plain", async () => {
    const others = (await Array.fromAsync(glob(["test/**/*.ts", "scripts/**/*.ts"], { cwd: ROOT }))).map(
      (path) => ({ path, text: readFileSync(join(ROOT, path), "utf8") }),
    );
    const written = [...sources, ...others].filter(({ path }) => !ABOUT_WORDS.test(path));
    expect(written.flatMap(bannedWords)).toEqual([]);
  });

  test.each([
    "/** Whoever asks is told. */",
    "// What stands still goes on.",
    `/** As \`${"wire"}.md\` says. */`,
    "const lookedInVain = 1;",
    "class OutputRooms {}",
    "function tellEveryone() {}",
  ])("are seen where they are not: %s", (text) => {
    expect(bannedWords({ path: "packages/kit/src/a.ts", text })).not.toEqual([]);
  });

  test("are seen in the title of a test", () => {
    const text = `test("a guest is told so", () => {});`;
    expect(bannedWords({ path: "packages/kit/src/a.test.ts", text })).not.toEqual([]);
  });

  test("in strings are those of callers", () => {
    expect(bannedWords({ path: "a.ts", text: `log.info("who is told goes on");` })).toEqual([]);
  });
});

/** A package may have dependencies for its tests alone. */
function declares(manifest: Manifest | undefined, path: string, name: string): boolean {
  const ofTests = path.includes("/test-support/") ? manifest?.devDependencies : {};
  return Object.hasOwn({ ...manifest?.dependencies, ...ofTests }, name);
}

describe("manifests", () => {
  test("declare every package of ours that the sources import", () => {
    const missing = sources.flatMap(({ path, text }) => {
      const own = manifests.find(({ dir }) => path.startsWith(`${dir}/`));
      return importsOf(text)
        .map(({ from }) => from.split("/").slice(0, 2).join("/"))
        .filter((name) => name.startsWith("@vivarium/") && name !== own?.manifest.name)
        .filter((name) => !path.endsWith(".test.ts") && !declares(own?.manifest, path, name))
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
