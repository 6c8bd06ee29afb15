/** Reads the files of `--connect`: Connections as JSON, with their secrets or the places of these. */
import type { ConnectionCreate, SessionCreate } from "@vivarium/sdk";
import { UsageError } from "../cli-error.ts";
import { readText } from "./read-text.ts";
import { readSecretFile, type Variables } from "./secrets.ts";

/** Adds one file of a repeatable option to those before it. */
export function collectFile(file: string, before: string[] = []): string[] {
  return [...before, file];
}

/** The Connections of all files: each has one, or a list. The service checks everything but the places of secrets. */
export async function readConnectionFiles(
  files: readonly string[] | undefined,
  variable: Variables,
): Promise<SessionCreate["connections"]> {
  if (!files) return undefined;
  const connections: ConnectionCreate[] = [];
  for (const file of files) {
    const parsed = parseJson(file, await readText(file));
    const items: unknown[] = Array.isArray(parsed) ? parsed : [parsed];
    for (const [index, item] of items.entries())
      connections.push(
        await withSecret(Array.isArray(parsed) ? `${file}, item ${index}` : file, item, variable),
      );
  }
  return connections;
}

function parseJson(file: string, text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    // The parser's message repeats a part of the text, which may be a secret.
    const [at = ""] = /at position \d+( \(line \d+ column \d+\))?/.exec(String(error)) ?? [];
    throw new UsageError(`${file} is not JSON${at && `, ${at}`}`, FORM);
  }
}

async function withSecret(where: string, item: unknown, variable: Variables): Promise<ConnectionCreate> {
  if (!isObject(item) || !isObject(item.authentication))
    throw new UsageError(`${where}: expected a Connection with "authentication"`, FORM);
  const { secret, ...authentication } = item.authentication;
  const value = await secretOf(where, secret, variable);
  // The service is the one to check all other fields.
  return { ...item, authentication: { ...authentication, secret: value } } as unknown as ConnectionCreate;
}

async function secretOf(where: string, secret: unknown, variable: Variables): Promise<string> {
  if (typeof secret === "string") return secret;
  const [[kind, place] = [], ...more] = isObject(secret) ? Object.entries(secret) : [];
  if (typeof place !== "string" || more.length > 0 || (kind !== "env" && kind !== "file"))
    throw new UsageError(
      `${where}: "secret" is not a text and no place of one`,
      'Expected "…", {"env": "VAR"} or {"file": "PATH"}.',
    );
  if (kind === "file") return await readSecretFile(where, place);
  const value = variable(place);
  if (value !== undefined) return value;
  // The name may be the secret itself.
  throw new UsageError(
    `${where}: the environment has no variable of the name in "env"`,
    'Expected the name of a variable that is set, {"env": "VAR"}. Or give a file: {"file": "PATH"}.',
  );
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

const FORM =
  'Expected {"name": …, "origin": "https://HOST", "authentication": {"type": "bearer", "secret": {"env": "VAR"}}, "allow": {"methods": […], "paths": […]}}, or a list of these.';
