import type { ArtifactExtension } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import type { ArtifactDeps } from "./deps.ts";
import { getArtifact } from "./get.ts";
import { type ArtifactRow, saveExpiry } from "./store.ts";

/** Moves the expiry later, up to the cap, and never earlier. */
export async function extendArtifact(
  deps: Pick<ArtifactDeps, "db" | "auditKey">,
  scope: Scope,
  { id, body, by }: { id: string; body: ArtifactExtension; by: Caller },
): Promise<ArtifactRow> {
  return await deps.db.transaction().execute(async (tx) => {
    const { session_id: sessionId } = await getArtifact(tx, scope, id, { lock: true });
    const row = await saveExpiry(tx, id, body.ttl_days);
    const meta = { expires_at: row.expires_at.toISOString() };
    await appendEntry(deps, tx, { by, action: "artifact.extend", target: id, sessionId, meta });
    return row;
  });
}
