/**
 * Rules about sources, as data: the imports and names that a file may use, by its path. Every rule has samples that
 * break it, so that the test can show that the rule finds them.
 */
import { basename, dirname, join } from "node:path";
import { SESSION_STATES } from "@vivarium/contract/api";

export interface Source {
  /** Path from the repository's root. */
  path: string;
  text: string;
}

export interface SourceRule {
  title: string;
  /** The faults of this file, one line each. */
  check(source: Source): string[];
  offenders: Source[];
}

interface Import {
  from: string;
  isTypeOnly: boolean;
  /** Names of imported values, without types. */
  names: string[];
}

const IMPORT = /^\s*(?:import|export)\s+(type\s+)?(?:([^"';]*?)\sfrom\s+)?["']([^"']+)["']/gm;
const DYNAMIC_IMPORT = /\bimport\(\s*["']([^"']+)["']/g;

export function importsOf(text: string): Import[] {
  const fixed = [...text.matchAll(IMPORT)].map(([, type, list = "", from = ""]) => {
    const all =
      /\{([^}]*)\}/
        .exec(list)?.[1]
        ?.split(",")
        .map((name) => name.trim())
        .filter(Boolean) ?? [];
    const names = type === undefined ? all.filter((name) => !name.startsWith("type ")) : [];
    return { from, isTypeOnly: type !== undefined || (all.length > 0 && names.length === 0), names };
  });
  const dynamic = [...text.matchAll(DYNAMIC_IMPORT)].map(([, from = ""]) => ({
    from,
    isTypeOnly: false,
    names: [],
  }));
  return [...fixed, ...dynamic];
}

const isSupport = (path: string) => /^packages\/[^/]+\/test-support\//.test(path);
export const isTest = (path: string) => path.endsWith(".test.ts") || isSupport(path);
const isStore = (path: string) => /(^|[/-])(store|columns)\.ts$/.test(path);
const packageOf = (path: string) => /^packages\/([^/]+)\//.exec(path)?.[1] ?? "";
const insidePackage = (path: string) => path.replace(/^packages\/[^/]+\/(src|test-support)\//, "");
const roomOf = (path: string) => insidePackage(path).split("/").slice(0, -1)[0] ?? "";
const ownPackage = (from: string) => /^@vivarium\/([^/]+)/.exec(from)?.[1];

/** Packages of this repository that a package may import. */
const MAY_IMPORT: Record<string, readonly string[]> = {
  contract: [],
  kit: [],
  http1: ["kit"],
  objects: ["kit"],
  archive: ["kit", "objects"],
  oci: ["kit"],
  control: ["archive", "contract", "http1", "kit", "objects", "oci"],
  node: ["archive", "contract", "kit", "oci"],
  gateway: ["contract", "http1", "kit"],
  sdk: ["contract"],
  cli: ["sdk", "contract", "kit", "objects"],
  dashboard: ["sdk"],
};

/** Packages that tests of a package may import besides: the fake node packs as the real one does. */
const TESTS_MAY_IMPORT: Readonly<Record<string, readonly string[]>> = { contract: ["archive"] };

/** Tests of every package may import it. */
const TOOLS_OF_TESTS = "@vivarium/kit/test-support/";

const PLAIN_TABLES = /^@vivarium\/contract\/api\/(errors|limits|states|ids)$/;
const TABLE_FILE = /^packages\/contract\/src\/(api|node)\/(errors|limits|states)\.ts$/;
const ENTRIES = /^(main|bake)\.ts$/;
const DRIVERS = new Set(["pg", "kysely"]);
const FORBIDDEN_NAMES =
  /^(utils?|helpers?|common|manager|types|constants|misc)$|-(utils?|helpers?|manager)$|(^|-)(v\d+|new|old|legacy)$/;
const GLOSSARY =
  /\b(sessions?|machines?|incarnations?|templates?|snapshots?|checkpoints?|egress|artifacts?|previews?|tenants?|agents?|guests?|visitors?)\b/i;
const TARGET_STATE = new RegExp(
  `\\bstate:\\s*["'](${SESSION_STATES.join("|")})["']|set\\s+state\\s*=\\s*'(${SESSION_STATES.join("|")})'`,
  "g",
);
const ERROR_BODY =
  /\{[^{}]*\berror\s*[:,][^{}]*\bcode\s*[:,}][^{}]*\}|\{[^{}]*\bcode\s*:[^{}]*\berror\s*:[^{}]*\}/g;

function forImports(source: Source, isWrong: (item: Import) => boolean): string[] {
  return importsOf(source.text)
    .filter(isWrong)
    .map((item) => `${source.path} imports ${item.from}`);
}

function forMatches(source: Source, pattern: RegExp): string[] {
  const code = source.text.replaceAll(/\/\*[\s\S]*?\*\//g, "").replaceAll(/^\s*\/\/.*$/gm, "");
  return [...code.matchAll(pattern)].map((match) => `${source.path}: ${match[0].trim().slice(0, 80)}`);
}

/** Removes `readConfig(process.env)` of a program's entry, which may pass the environment on. */
function withoutHandOver({ path, text }: Source): Source {
  const isEntry = ENTRIES.test(insidePackage(path));
  return { path, text: isEntry ? text.replaceAll(/\b\w+\(process\.env\)/g, "") : text };
}

/** In the client of registries an `Agent` holds connections, and `user-agent` is a header: neither is the one in a guest. */
function withoutHttpAgents({ path, text }: Source): string {
  return packageOf(path) === "oci" ? text.replaceAll(/\bAgent\b|"user-agent"/g, "") : text;
}

export const SOURCE_RULES: SourceRule[] = [
  {
    title: "a package imports only the packages below it; control, node and gateway never each other",
    check: (source) => {
      const own = packageOf(source.path);
      return forImports(source, ({ from }) => {
        if (isTest(source.path) && from.startsWith(TOOLS_OF_TESTS)) return false;
        const other = ownPackage(from);
        const allowed = [
          ...(MAY_IMPORT[own] ?? []),
          ...(isTest(source.path) ? (TESTS_MAY_IMPORT[own] ?? []) : []),
        ];
        return other !== undefined && other !== own && !allowed.includes(other);
      });
    },
    offenders: [
      { path: "packages/control/src/a.ts", text: `import { start } from "@vivarium/node/main";` },
      { path: "packages/node/src/a.ts", text: `const x = await import("@vivarium/control/main");` },
      { path: "packages/kit/src/a.ts", text: `import type { X } from "@vivarium/contract/api";` },
      { path: "packages/sdk/src/a.test.ts", text: `import { sleep } from "@vivarium/kit/clock";` },
      { path: "packages/sdk/src/a.ts", text: `import { x } from "@vivarium/kit/test-support/x";` },
    ],
  },
  {
    title: "nothing reaches into another package by path, and nothing imports test/",
    check: (source) =>
      forImports(source, ({ from }) => {
        if (!from.startsWith(".")) return false;
        const root = `packages/${packageOf(source.path)}/`;
        return !join(dirname(source.path), from).startsWith(root);
      }),
    offenders: [
      { path: "packages/cli/src/a.ts", text: `import { x } from "../../node/src/bake.ts";` },
      { path: "packages/cli/src/a.ts", text: `import { x } from "../../../test/support/service.ts";` },
    ],
  },
  {
    title: "what helps tests is in test-support/, and tests alone import it",
    check: (source) => [
      ...(/\/src\/.*(\.test-support\.ts$|\/test-support\/)/.test(source.path)
        ? [`${source.path} belongs into packages/${packageOf(source.path)}/test-support`]
        : []),
      ...(isTest(source.path) ? [] : forImports(source, ({ from }) => /(^|\/)test-support\//.test(from))),
    ],
    offenders: [
      { path: "packages/control/src/control.test-support.ts", text: "" },
      { path: "packages/control/src/exec/test-support/output.ts", text: "" },
      { path: "packages/control/src/app.ts", text: `import { x } from "../test-support/control.ts";` },
      { path: "packages/sdk/src/a.ts", text: `const x = await import("@vivarium/contract/test-support/x");` },
    ],
  },
  {
    title: "contract imports only the schema library",
    check: (source) =>
      packageOf(source.path) === "contract" && !isTest(source.path)
        ? forImports(source, ({ from }) => from !== "zod" && !from.startsWith("."))
        : [],
    offenders: [{ path: "packages/contract/src/api/a.ts", text: `import { readFile } from "node:fs";` }],
  },
  {
    title: "the tables of errors, limits and states import nothing",
    check: (source) => (TABLE_FILE.test(source.path) ? forImports(source, () => true) : []),
    offenders: [{ path: "packages/contract/src/api/errors.ts", text: `import { z } from "zod";` }],
  },
  {
    title: "no word of the domain appears in kit, http1, objects, archive and oci",
    check: (source) =>
      ["kit", "http1", "objects", "archive", "oci"].includes(packageOf(source.path)) &&
      GLOSSARY.test(withoutHttpAgents(source))
        ? [`${source.path} says "${GLOSSARY.exec(withoutHttpAgents(source))?.[0]}"`]
        : [],
    offenders: [
      { path: "packages/kit/src/a.ts", text: "/** Waits for a session. */" },
      { path: "packages/http1/src/a.ts", text: "/** Answers for a guest. */" },
      { path: "packages/oci/src/a.ts", text: "/** Pulls a template. */" },
      { path: "packages/oci/src/a.ts", text: "/** Adds the agent. */" },
      { path: "packages/objects/src/a.ts", text: "/** Keeps artifacts. */" },
      { path: "packages/archive/src/a.ts", text: "/** Packs a snapshot. */" },
    ],
  },
  {
    title: "the SDK takes only types and plain tables from the contract, and of packages a WebSocket alone",
    check: (source) =>
      packageOf(source.path) === "sdk" && !isTest(source.path)
        ? forImports(source, ({ from, isTypeOnly }) => {
            if (!from.startsWith("@vivarium/")) return !/^(\.|node:|ws$)/.test(from);
            return !(isTypeOnly && from.startsWith("@vivarium/contract/api")) && !PLAIN_TABLES.test(from);
          })
        : [],
    offenders: [
      { path: "packages/sdk/src/a.ts", text: `import { SessionRecord } from "@vivarium/contract/api";` },
      { path: "packages/sdk/src/a.ts", text: `import pRetry from "p-retry";` },
    ],
  },
  {
    title: "only db/, the rooms of columns, stores and columns see the database driver",
    check: (source) => {
      const isOfSql = ["db", "deadlines", "leases"].includes(roomOf(source.path));
      const mayUse = isOfSql || isStore(source.path) || isTest(source.path);
      return mayUse ? [] : forImports(source, ({ from, isTypeOnly }) => !isTypeOnly && DRIVERS.has(from));
    },
    offenders: [
      { path: "packages/control/src/starts/create.ts", text: `import { sql } from "kysely";` },
      { path: "packages/cli/src/a.ts", text: `import pg from "pg";` },
    ],
  },
  {
    title: "only http/ (server/ in the node), routes and app.ts see the web framework",
    check: (source) => {
      const mayUse =
        ["http", "server"].includes(roomOf(source.path)) ||
        /(^app|(^|-)routes)\.ts$/.test(basename(source.path));
      return mayUse || isTest(source.path)
        ? []
        : forImports(source, ({ from }) => from === "fastify" || from.startsWith("@fastify/"));
    },
    offenders: [{ path: "packages/control/src/starts/create.ts", text: `import Fastify from "fastify";` }],
  },
  {
    title: "only config.ts reads the environment; a program hands it over whole",
    check: (source) =>
      basename(source.path) === "config.ts" || isTest(source.path)
        ? []
        : forMatches(
            withoutHandOver(source),
            /process\.env\b|\benv\b[^"';]*\}\s*from\s*["']node:process["']/g,
          ),
    offenders: [
      { path: "packages/control/src/app.ts", text: "const level = process.env.VIV_LOG_LEVEL;" },
      { path: "packages/control/src/main.ts", text: "listen(process.env.PORT);" },
      { path: "packages/node/src/app.ts", text: `import { env } from "node:process";` },
    ],
  },
  {
    title: "only app.ts constructs pools, servers and apps",
    check: (source) => {
      const mayConstruct =
        /^(app|main|bake|backup|storage)\.ts$/.test(basename(source.path)) ||
        ["http", "db", "server"].includes(roomOf(source.path)) ||
        ["kit", "cli", "sdk"].includes(packageOf(source.path)) ||
        isTest(source.path);
      return mayConstruct
        ? []
        : forMatches(source, /\bnew (pg\.)?Pool\(|\bnew Kysely\b|\bFastify\(|\bcreateLog\(/gi);
    },
    offenders: [
      { path: "packages/control/src/starts/create.ts", text: "const pool = new Pool({});" },
      { path: "packages/node/src/machines/start.ts", text: `const log = createLog("node");` },
    ],
  },
  {
    title: "only sessions/state.ts names target states",
    check: (source) =>
      packageOf(source.path) === "control" &&
      !isTest(source.path) &&
      insidePackage(source.path) !== "sessions/state.ts"
        ? forMatches(source, TARGET_STATE)
        : [],
    offenders: [
      { path: "packages/control/src/moves/destroy.ts", text: `await save(db, { state: "destroyed" });` },
      { path: "packages/control/src/sessions/store.ts", text: "sql`update sessions set state = 'live'`" },
    ],
  },
  {
    title: "only render-error.ts writes an error body",
    check: (source) =>
      packageOf(source.path) === "control" &&
      !isTest(source.path) &&
      basename(source.path) !== "render-error.ts"
        ? forMatches(source, ERROR_BODY)
        : [],
    offenders: [
      {
        path: "packages/control/src/http/router.ts",
        text: `reply.send({ error: "no", code: "not_found" });`,
      },
      {
        path: "packages/control/src/exec/batch.ts",
        text: `return { code: failure.code, error: failure.message };`,
      },
    ],
  },
  {
    title: "files are kebab-case and named after what they hold",
    check: (source) => {
      const name = basename(source.path).replace(/(\.test|\.config)?\.ts$/, "");
      const isKebab = /^[a-z0-9]+(-[a-z0-9]+)*$/.test(name);
      return isKebab && !FORBIDDEN_NAMES.test(name) ? [] : [`${source.path} is not a name of the house`];
    },
    offenders: [
      "utils.ts",
      "sessionStore.ts",
      "string-helpers.ts",
      "types.ts",
      "exec-v2.ts",
      "Machine.ts",
    ].map((name) => ({ path: `packages/control/src/sessions/${name}`, text: "" })),
  },
  {
    title: "there are no default exports, and relative imports end in .ts",
    check: (source) => [
      ...forMatches(source, /^export default\b|\bas default\b/gm),
      ...forImports(source, ({ from }) => from.startsWith(".") && !/\.(ts|json)$/.test(from)),
    ],
    offenders: [
      { path: "packages/node/src/a.ts", text: "export default function start() {}" },
      { path: "packages/node/src/a.ts", text: `import { x } from "./start";` },
    ],
  },
  {
    title: "a package's entry is the only barrel",
    check: (source) => {
      const isEntry = /^(index\.ts|(api|node|guest|gateway)\/index\.ts)$/.test(insidePackage(source.path));
      const isBarrel = basename(source.path) === "index.ts";
      return isBarrel && !isEntry ? [`${source.path} is a barrel`] : [];
    },
    offenders: [{ path: "packages/control/src/sessions/index.ts", text: "" }],
  },
];
