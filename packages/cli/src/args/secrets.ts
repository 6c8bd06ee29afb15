/** Reads the values of `--secret`, which never stand on the command line: other users of this machine could see it. */
import { InvalidArgumentError } from "commander";
import { UsageError } from "../cli-error.ts";
import { readBytes } from "./read-text.ts";

/** Where the value of a secret is: a variable of the environment, a file, or `-`, the standard input. */
export interface SecretSource {
  name: string;
  from: { variable: string } | { file: string };
}

/** Parses `NAME`, `NAME=@FILE` or `NAME=-`. */
export function collectSecret(text: string, before: SecretSource[] = []): SecretSource[] {
  const [, name = "", , place] = /^([^=]*)(=(.*))?$/s.exec(text) ?? [];
  if (name === "") throw new InvalidArgumentError("Expected NAME, NAME=@FILE or NAME=-.");
  if (place === undefined) return [...before, { name, from: { variable: name } }];
  if (place === "-") return [...before, { name, from: { file: "-" } }];
  if (place.startsWith("@") && place.length > 1) return [...before, { name, from: { file: place.slice(1) } }];
  throw new InvalidArgumentError(
    `A value on the command line can be seen by others. Give ${name} in the environment (--secret ${name}), in a file (${name}=@FILE) or on the standard input (${name}=-).`,
  );
}

/** The secrets, with their values. `variable` reads the environment. A line end after a value is not part of it. */
export async function readSecrets(
  sources: readonly SecretSource[] | undefined,
  variable: (name: string) => string | undefined,
): Promise<Record<string, string> | undefined> {
  if (!sources) return undefined;
  const [ofInput, again] = sources.filter(({ from }) => "file" in from && from.file === "-");
  if (ofInput && again)
    throw new UsageError(
      `--secret ${again.name}: the standard input is the value of ${ofInput.name} already`,
    );
  const secrets: Record<string, string> = {};
  for (const { name, from } of sources) {
    if (Object.hasOwn(secrets, name)) throw new UsageError(`--secret ${name} is given twice`);
    if ("file" in from) secrets[name] = decode(name, await readBytes(from.file)).replace(/\r?\n$/, "");
    else secrets[name] = variable(from.variable) ?? missing(name);
  }
  return secrets;
}

function decode(name: string, bytes: Buffer): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new UsageError(
      `--secret ${name}: the value is not UTF-8 text`,
      "A variable cannot contain other bytes: give the file's base64.",
    );
  }
}

function missing(name: string): never {
  throw new UsageError(
    `--secret ${name}: the environment has no variable ${name}`,
    `Set it, or give a file: --secret ${name}=@FILE`,
  );
}
