/** Work on files that may not be there. */
import { hasCode } from "./unknown-error.ts";

/** Undefined if the work failed because there is no such file. */
export async function ifThere<T>(work: Promise<T>): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (hasCode(error, "ENOENT", "ENOTDIR")) return undefined;
    throw error;
  }
}
