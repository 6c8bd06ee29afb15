/** HTTP requests to the shared service without the SDK, for facts that it hides. */
import { Client } from "@vivarium/sdk";
import { type Answer, type Ask, askAt } from "./asking.ts";
import { sharedService } from "./shared-service.ts";

export type { Answer, Ask } from "./asking.ts";

export const service = sharedService();

export const client = new Client({ url: service.url, apiKey: service.apiKey, retries: 0 });

export const ask = (path: string, options: Ask = {}): Promise<Answer> => askAt(service, path, options);

export const sh = (script: string) => ["sh", "-c", script];

/** Runs `use` with a live session, which is deleted afterwards, also after a failure. */
export async function withSession<T>(use: (sessionId: string) => Promise<T>, request = {}): Promise<T> {
  const { session_id } = await client.sessions.create(request);
  try {
    await client.sessions.waitUntilLive(session_id);
    return await use(session_id);
  } finally {
    await ask(`/v1/sessions/${session_id}`, { method: "DELETE" }).catch(() => {});
  }
}
