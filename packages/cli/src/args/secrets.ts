/** Reads the values of `--secret`, which never stand on the command line: other users of this machine could see it. */
import { LIMITS } from "@vivarium/contract/api";
import { UsageError } from "../cli-error.ts";
import { readBytes } from "./read-text.ts";

/** Where a value is: a variable of the environment, a file, or `-`, the standard input. */
export type SecretPlace = { variable: string } | { file: string };

export interface SecretSource {
  name: string;
  from: SecretPlace;
}

/** The form of a variable's name, as the service takes it. */
export const VARIABLE = new RegExp(`^[A-Za-z_][A-Za-z0-9_]{0,${LIMITS.envKeyChars - 1}}$`);

export type Variables = (name: string) => string | undefined;

const WAYS =
  "Give it in a variable of the environment (--secret NAME), in a file (--secret NAME=@FILE) or on the standard input (--secret NAME=-).";

/** Parses `NAME`, `NAME=@FILE` or `NAME=-`. Any part of the text may be the secret itself: no error repeats it. */
export function collectSecret(text: string, before: SecretSource[] = []): SecretSource[] {
  const [, name = "", , place] = /^([^=]*)(=(.*))?$/s.exec(text) ?? [];
  const option = nth(before.length);
  // Not the parser's own error, which would repeat the text.
  if (!VARIABLE.test(name))
    throw new UsageError(
      `${option}: expected NAME, NAME=@FILE or NAME=-; a name has letters, digits and _ alone, no digit first, and at most ${LIMITS.envKeyChars} characters`,
    );
  const from = place === undefined ? { variable: name } : asPlace(place);
  if (from) return [...before, { name, from }];
  throw new UsageError(
    `${option}: a value on the command line can be seen by other users of this machine`,
    `${WAYS} If this was the secret, replace it where it was issued.`,
  );
}

/** Parses `@FILE` or `-`; undefined for any other text. */
export function asPlace(text: string): SecretPlace | undefined {
  if (text === "-") return { file: "-" };
  return text.startsWith("@") && text.length > 1 ? { file: text.slice(1) } : undefined;
}

export function isInput(place: SecretPlace): boolean {
  return "file" in place && place.file === "-";
}

/** The secrets, with their values. `variable` reads the environment. A name may be a secret that has the form of one. */
export async function readSecrets(
  sources: readonly SecretSource[] | undefined,
  variable: Variables,
): Promise<Record<string, string> | undefined> {
  if (!sources) return undefined;
  const ofInput = sources.findIndex(({ from }) => isInput(from));
  const again = sources.findLastIndex(({ from }) => isInput(from));
  if (ofInput !== again)
    throw new UsageError(`${nth(again)}: the standard input is the value of ${nth(ofInput)} already`);
  const secrets: Record<string, string> = {};
  for (const [index, { name, from }] of sources.entries()) {
    if (Object.hasOwn(secrets, name))
      throw new UsageError(`${nth(index)}: an earlier --secret has the same name`);
    if ("file" in from) secrets[name] = await readSecretFile(nth(index), from.file);
    else secrets[name] = variable(from.variable) ?? missing(index);
  }
  return secrets;
}

/** The value in a file, or on the standard input. A line end after it is not part of it. `what` begins an error. */
export async function readSecretFile(what: string, file: string): Promise<string> {
  const bytes = await readBytes(file).catch((error: UsageError) => unreadable(what, error.cause ?? error));
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    return text.replace(/\r?\n$/, "");
  } catch {
    throw new UsageError(
      `${what}: the value is not UTF-8 text`,
      "It cannot contain other bytes: give the file's base64.",
    );
  }
}

/** The path may be the secret itself, as in `--secret NAME=@ghp_…`: only the error's code is printed. */
function unreadable(what: string, cause: unknown): never {
  const code = cause instanceof Error && "code" in cause ? ` (${cause.code})` : "";
  throw new UsageError(`${what}: the file with the value cannot be read${code}`);
}

function missing(index: number): never {
  throw new UsageError(
    `${nth(index)}: the environment has no variable of that name`,
    `${WAYS} The secret itself does not belong there: other users of this machine can see it.`,
  );
}

/** One of several `--secret`, named by its place, since nothing of its text may be printed. */
function nth(index: number): string {
  return `--secret number ${index + 1}`;
}
