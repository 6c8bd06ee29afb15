/** The language of a program that `viv run` is given, and the command that runs it. */
import path from "node:path";
import type { Language } from "@vivarium/sdk";
import { UsageError } from "../cli-error.ts";

export const LANGUAGE_NAMES: readonly Language[] = ["python", "node", "bun"];
const BY_EXTENSION: Readonly<Record<string, Language>> = {
  ".py": "python",
  ".js": "node",
  ".mjs": "node",
  ".cjs": "node",
  ".ts": "bun",
  ".tsx": "bun",
};

/** The language of a program: that of the option, else that of the file's extension. */
export function chooseLanguage(file: string, option?: string): Language {
  const known = LANGUAGE_NAMES.join(", ");
  if (option !== undefined) {
    const language = LANGUAGE_NAMES.find((name) => name === option);
    if (language) return language;
    throw new UsageError(`--language is "${option}"; expected one of ${known}`);
  }
  const language = BY_EXTENSION[path.extname(file).toLowerCase()];
  if (language) return language;
  const source = file === "-" ? "standard input has no file name" : `the extension of ${file} says nothing`;
  throw new UsageError(
    `${source}: which language is it?`,
    `Add --language with one of ${known}. Known extensions: ${Object.keys(BY_EXTENSION).join(" ")}`,
  );
}

const RUN: Readonly<Record<Language, { command: string[]; extension: string }>> = {
  python: { command: ["python3"], extension: ".py" },
  node: { command: ["node"], extension: ".js" },
  bun: { command: ["bun", "run"], extension: ".ts" },
};

/**
 * Name of the file in /workspace that receives the program, and the command that runs it. A program passed as an
 * argument would lack its own name (`__file__`, `require.main`) and the source lines of its tracebacks. The extension
 * is kept: `.mjs` and `.cjs` are both node, but of different module kinds.
 */
export function programIn(language: Language, source: string): { file: string; command: string[] } {
  const given = path.extname(source).toLowerCase();
  const { command, extension } = RUN[language];
  const file = `main${BY_EXTENSION[given] === language ? given : extension}`;
  return { file, command: [...command, file] };
}
