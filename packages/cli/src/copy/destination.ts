import { CliError } from "../cli-error.ts";
import { EXIT } from "../exit-codes.ts";
import { baseName, join, type Place } from "./entry.ts";

/**
 * Where a copy of `from` goes when the human says `to`, as with cp: into a directory that is there, else under the name
 * itself. What `from/.` holds goes right into it.
 */
export async function destinationOf(
  target: Pick<Place, "scan" | "nameOf">,
  { from, to }: { from: string; to: string },
): Promise<string> {
  const name = baseName(from);
  const found = (await target.scan(to, { depth: 0 }))?.get("");
  if (found?.kind === "directory") return name === undefined || /\/\.\/*$/.test(from) ? to : join(to, name);
  if (!to.endsWith("/")) return to;
  if (found !== undefined)
    throw new CliError(`${target.nameOf(to)} is no directory`, { exitCode: EXIT.failed });
  return name === undefined ? to : join(to, name);
}
