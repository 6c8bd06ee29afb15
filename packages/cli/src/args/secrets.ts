/** Reads the values of `--secret`, which never stand on the command line: other users of this machine could see it. */
import { UsageError } from "../cli-error.ts";
import { readBytes } from "./read-text.ts";

/** Where a value is: a variable of the environment, a file, or `-`, the standard input. */
export type SecretPlace = { variable: string } | { file: string };

export interface SecretSource {
  name: string;
  from: SecretPlace;
}

export type Variables = (name: string) => string | undefined;

/** Parses `NAME`, `NAME=@FILE` or `NAME=-`. */
export function collectSecret(text: string, before: SecretSource[] = []): SecretSource[] {
  const [, name = "", , place] = /^([^=]*)(=(.*))?$/s.exec(text) ?? [];
  // Not the parser's own error, which would repeat the text.
  if (name === "") throw new UsageError("--secret: expected NAME, NAME=@FILE or NAME=-");
  const from = place === undefined ? { variable: name } : asPlace(place);
  if (from) return [...before, { name, from }];
  throw new UsageError(
    "--secret: a value on the command line can be seen by other users of this machine",
    `Give ${name} in the environment (--secret ${name}), in a file (${name}=@FILE) or on the standard input (${name}=-).`,
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

/** The secrets, with their values. `variable` reads the environment. */
export async function readSecrets(
  sources: readonly SecretSource[] | undefined,
  variable: Variables,
): Promise<Record<string, string> | undefined> {
  if (!sources) return undefined;
  const [ofInput, again] = sources.filter(({ from }) => isInput(from));
  if (ofInput && again)
    throw new UsageError(
      `--secret ${again.name}: the standard input is the value of ${ofInput.name} already`,
    );
  const secrets: Record<string, string> = {};
  for (const { name, from } of sources) {
    if (Object.hasOwn(secrets, name)) throw new UsageError(`--secret ${name} is given twice`);
    if ("file" in from) secrets[name] = await readSecretFile(`--secret ${name}`, from.file);
    else secrets[name] = variable(from.variable) ?? missing(name);
  }
  return secrets;
}

/** The value in a file, or on the standard input. A line end after it is not part of it. `what` begins an error. */
export async function readSecretFile(what: string, file: string): Promise<string> {
  const bytes = await readBytes(file);
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

function missing(name: string): never {
  throw new UsageError(
    `--secret ${name}: the environment has no variable ${name}`,
    `Set it, or give a file: --secret ${name}=@FILE`,
  );
}
