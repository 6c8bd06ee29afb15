import type { Session } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import { inGroups } from "./portions.ts";

/** Enough time for a walk through a large tree. */
const TIMEOUT_MS = 10 * 60_000;
/** Most bytes of one script, which is one argument: Linux allows 128 KiB. */
const SCRIPT = { items: Number.POSITIVE_INFINITY, bytes: 96 * 1024 };

/** Runs a shell script in the session and returns all of its output, without a size limit. */
export async function runInGuest(
  session: Session,
  script: string,
  { args = [], signal }: { args?: string[]; signal?: AbortSignal } = {},
): Promise<{ exitCode: number; stdout: Buffer; stderr: string }> {
  const command = ["sh", "-c", script, "sh", ...args];
  const chunks = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  for await (const event of session.execStream({ command, timeout_ms: TIMEOUT_MS }, { signal })) {
    if (event.type !== "exit") chunks[event.type].push(event.data);
    else if (event.data.timed_out) throw new CliError("the session took longer than 10 minutes to answer");
    else {
      const stderr = Buffer.concat(chunks.stderr).toString().trim();
      return { exitCode: event.data.exit_code, stdout: Buffer.concat(chunks.stdout), stderr };
    }
  }
  throw new Error("the stream of a program ended without its exit");
}

/** Runs shell lines, as many per command as fit; returns the lines of their standard error. */
export async function runLines(
  session: Session,
  lines: readonly string[],
  signal?: AbortSignal,
): Promise<string[]> {
  const complaints: string[] = [];
  for (const script of inGroups(lines, (line) => Buffer.byteLength(line) + 1, SCRIPT)) {
    const { stderr } = await runInGuest(session, script.join("\n"), { signal });
    if (stderr !== "") complaints.push(...stderr.split("\n"));
  }
  return complaints;
}

/** Quotes any text as one shell word. */
export function quote(text: string): string {
  return `'${text.replaceAll("'", "'\\''")}'`;
}
