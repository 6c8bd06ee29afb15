import { CliError } from "../cli-error.ts";
import { baseName, join, type Place } from "./entry.ts";

/**
 * Path of the copy of `from` when the human gives `to`, as with cp: inside `to` if that is a directory, else `to`
 * itself. The contents of `from/.` go directly into `to`.
 */
export async function destinationOf(
  target: Pick<Place, "scan" | "nameOf">,
  { from, to }: { from: string; to: string },
): Promise<string> {
  const name = baseName(from);
  const found = (await target.scan(to, { depth: 0 }))?.get("");
  if (found?.kind === "directory") return name === undefined || /\/\.\/*$/.test(from) ? to : join(to, name);
  if (!to.endsWith("/")) return to;
  if (found !== undefined) throw new CliError(`${target.nameOf(to)} is no directory`);
  return name === undefined ? to : join(to, name);
}
