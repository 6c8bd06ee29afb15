/** Reads one credential, of a Connection or of a registry, which never stands on the command line. */
import { UsageError } from "../cli-error.ts";
import type { Terminal } from "../terminal.ts";
import { asPlace, readSecretFile, type SecretPlace, VARIABLE, type Variables } from "./secrets.ts";

const WAYS =
  "Give it in a variable of the environment (--secret VAR), in a file (--secret @FILE) or on the standard input (--secret -).";

/** Parses `VAR`, `@FILE` or `-`. Any other text may be the credential itself: no error repeats it. */
export function parseSecretPlace(text: string): SecretPlace {
  const place = asPlace(text) ?? (VARIABLE.test(text) ? { variable: text } : undefined);
  if (place) return place;
  throw new UsageError(
    "--secret: a value on the command line can be seen by other users of this machine",
    `${WAYS} If this was the credential, replace it where it was issued.`,
  );
}

/** The credential. Without a place, a human is asked, or else the standard input read. */
export async function readSecretValue(
  place: SecretPlace | undefined,
  { terminal, variable, question }: { terminal: Terminal; variable: Variables; question: string },
): Promise<string> {
  const secret = await (place === undefined ? askOrRead(terminal, question) : readPlace(place, variable));
  if (secret === "") throw new UsageError("the secret is empty", WAYS);
  return secret;
}

async function askOrRead(terminal: Terminal, question: string): Promise<string> {
  if (terminal.canAsk) return await terminal.askHidden(question);
  // Standard error leads elsewhere, so the human would not see the question.
  if (process.stdin.isTTY) throw new UsageError("nobody can be asked for the secret here", WAYS);
  return await readSecretFile("the secret", "-");
}

async function readPlace(place: SecretPlace, variable: Variables): Promise<string> {
  if ("file" in place) return await readSecretFile("--secret", place.file);
  const value = variable(place.variable);
  if (value !== undefined) return value;
  // The name may be a credential that has the form of a name.
  throw new UsageError(
    "--secret: the environment has no variable of that name",
    `${WAYS} The credential itself does not belong there: other users of this machine can see it.`,
  );
}
