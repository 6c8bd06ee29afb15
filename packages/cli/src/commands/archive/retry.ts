/** `viv archive retry`: tries again to store the state of a paused session. */
import { VivariumError } from "@vivarium/sdk";
import { withHint } from "../../print/explain-error.ts";
import { renderArchive } from "../../print/session.ts";
import { type Call, sessionVerb, type Verb } from "../verb.ts";

export function archiveRetryCommand(): Verb {
  return sessionVerb("retry", ["viv archive retry 4x7k2m9q0a1b2c3d4e5f6"])
    .summary("try again to store the state of a paused session")
    .description(
      `Try again at once to store the state of a paused session whose archive has failed; the service does so every hour by itself.
Prints the archive's status, which is pending, while the upload continues: viv get shows how it ends. Wakes nothing.`,
    )
    .option("--json", "print the archive as JSON")
    .does(retryArchive);
}

async function retryArchive(call: Call, reference: string): Promise<void> {
  const { client, id } = await call.find(reference);
  const archive = await client.sessions.retryArchive(id).catch((error: unknown) => {
    // The usual hint for this code is about a pause that was refused.
    if (!(error instanceof VivariumError) || error.code !== "archive_unavailable") throw error;
    throw withHint(error, "The service's operator sets it up: docs/operate/object-store.md");
  });
  call.print(archive, renderArchive);
}
