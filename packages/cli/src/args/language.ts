import path from "node:path";
import type { Language } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import { EXIT } from "../exit-codes.ts";

export const LANGUAGE_NAMES: readonly Language[] = ["python", "node", "bun"];
const BY_EXTENSION: Readonly<Record<string, Language>> = {
  ".py": "python",
  ".js": "node",
  ".mjs": "node",
  ".cjs": "node",
  ".ts": "bun",
  ".tsx": "bun",
};

/** The language a program is written in: the option, else what the file's extension says. */
export function chooseLanguage(file: string, option?: string): Language {
  const known = LANGUAGE_NAMES.join(", ");
  if (option !== undefined) {
    const language = LANGUAGE_NAMES.find((name) => name === option);
    if (language) return language;
    throw new CliError(`--language is "${option}"; expected one of ${known}`, { exitCode: EXIT.usage });
  }
  const language = BY_EXTENSION[path.extname(file).toLowerCase()];
  if (language) return language;
  const source = file === "-" ? "standard input has no file name" : `the extension of ${file} says nothing`;
  throw new CliError(`${source}: which language is it?`, {
    hint: `Add --language with one of ${known}. Known extensions: ${Object.keys(BY_EXTENSION).join(" ")}`,
    exitCode: EXIT.usage,
  });
}

/** argv that runs source code given as one argument. Node takes CommonJS and ES module syntax alike. */
export function commandFor(language: Language, code: string): string[] {
  if (language === "python") return ["python3", "-c", code];
  // A leading dash would be taken for another option.
  return [language, "-e", code.startsWith("-") ? ` ${code}` : code];
}
