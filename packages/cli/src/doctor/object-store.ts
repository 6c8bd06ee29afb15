/** Tries the bucket in which the service keeps files, if it does: puts an object there, reads, lists and deletes it. */
import { messageOf } from "@vivarium/kit/unknown-error";
import { probe } from "@vivarium/objects/probe";
import { readS3Settings } from "@vivarium/objects/s3-settings";
import { type Finding, ok, warn } from "./finding.ts";

const NAME = "object store";
/** Short, as a person waits for the answer. */
const LIMITS = { attempts: 2, connectMs: 3_000, idleMs: 5_000, callMs: 10_000 };

export async function checkObjectStore(childEnv: Record<string, string>): Promise<Finding> {
  try {
    const settings = readS3Settings(childEnv);
    if (settings === undefined) return ok(NAME, "a directory of this host");
    // The client of S3 takes time at the start of a command.
    const { S3Store } = await import("@vivarium/objects/s3-store");
    const store = new S3Store({ ...settings, limits: LIMITS });
    await probe(store).finally(() => store.close());
    return ok(NAME, `objects in ${childEnv.VIV_OBJECTS} can be written, read, listed and deleted`);
  } catch (error) {
    return warn(NAME, messageOf(error), "no artifact is captured or read", "Correct what that says.");
  }
}
