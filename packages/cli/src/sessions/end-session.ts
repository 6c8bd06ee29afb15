import { type Client, VivariumError } from "@vivarium/sdk";

/** Ends a session that was listed; no error if it has ended since. */
export async function endListed(client: Client, id: string): Promise<void> {
  await client.sessions.delete(id).catch((error: unknown) => {
    if (!(error instanceof VivariumError) || error.code !== "not_found") throw error;
  });
}
