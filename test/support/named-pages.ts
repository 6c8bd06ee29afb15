/** Finds names of pages (`*.md`) in comments and pages that lead to no file. */
import { existsSync } from "node:fs";
import { dirname, join } from "node:path";
import type { Source } from "./source-rules.ts";

/** A page's name, or several at once as in `docs/guide/{errors,limits}.md`. Quoted names are values of examples. */
const PAGE = /(?<![\w./*}"'-])(?:\.\.?\/)*\w[\w./-]*(?:\{[\w,-]+\})?\.md\b/g;
const BY_COMMENT: Record<string, RegExp> = {
  slashes: /\/\*[\s\S]*?\*\/|(?:^|\s)\/\/.*$/gm,
  hashes: /(?:^|\s)#.*$/gm,
  dashes: /(?:^|\s)--.*$/gm,
};

/** The faults of this file, one line each. Paths count from the root, or from the file itself. */
export function missingPages({ path, text }: Source, root: string): string[] {
  return [...proseOf(path, text).matchAll(PAGE)]
    .flatMap(([name]) => withoutBraces(name))
    .filter((name) => ![root, join(root, dirname(path))].some((from) => existsSync(join(from, name))))
    .map((name) => `${path} names ${name}`);
}

/** The comments of a source, or a page without its examples. */
function proseOf(path: string, text: string): string {
  if (path.endsWith(".md")) return text.replaceAll(/^```[\s\S]*?^```/gm, "");
  return [...text.matchAll(commentsOf(path))].map(([comment]) => comment).join("\n");
}

function commentsOf(path: string): RegExp {
  if (/\.(ts|js|mjs|rs|c|css)$/.test(path)) return BY_COMMENT.slashes as RegExp;
  return (path.endsWith(".sql") ? BY_COMMENT.dashes : BY_COMMENT.hashes) as RegExp;
}

function withoutBraces(name: string): string[] {
  const [before = "", names, after = ""] = name.split(/[{}]/);
  return names === undefined ? [name] : names.split(",").map((one) => before + one + after);
}

/** Name of a missing page, composed so that this file does not name it itself. */
const NOWHERE = `nowhere${".md"}`;

/** Samples that each name one missing page. */
export const NAMING_NO_PAGE: Source[] = [
  { path: "packages/control/src/a.ts", text: `/** Why it is so: ${NOWHERE} 4.2. */` },
  { path: "packages/control/src/a.ts", text: `const a = 1; // docs/{${NOWHERE.slice(0, -3)},glossary}.md` },
  { path: "guest/src/a.rs", text: `//! docs/design/${NOWHERE} says why.\n` },
  { path: "scripts/a", text: `#!/bin/sh\n# See ../docs/${NOWHERE}.\n` },
  { path: "packages/control/src/db/a.sql", text: `-- ${NOWHERE}\n` },
  { path: "docs/guide/a.md", text: `More: [here](errors.md), \`${NOWHERE}\`.` },
];

/** Samples without a fault: strings and examples do not count. */
export const NAMING_ONLY_PAGES: Source[] = [
  {
    path: "packages/control/src/a.ts",
    text: `write("${NOWHERE}"); // README.md, docs/guide/{errors,limits}.md`,
  },
  { path: "packages/sdk/src/a.ts", text: `/** \`files.write("${NOWHERE}", "text")\` */` },
  { path: "docs/guide/a.md", text: `See [errors](errors.md).\n\`\`\`sh\ncat ${NOWHERE}\n\`\`\`\n` },
];
