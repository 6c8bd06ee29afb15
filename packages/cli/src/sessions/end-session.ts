import { type Client, VivariumError } from "@vivarium/sdk";

/** Ends a session of a list; one that has ended since the list was made is fine. */
export async function endListed(client: Client, id: string): Promise<void> {
  await client.sessions.delete(id).catch((error: unknown) => {
    if (!(error instanceof VivariumError) || error.code !== "not_found") throw error;
  });
}
