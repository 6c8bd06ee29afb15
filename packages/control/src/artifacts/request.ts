/** Accepts a capture of a session. The files are copied in the background. */
import { type ArtifactCapture, ID_PREFIXES, LIMITS } from "@vivarium/contract/api";
import { crashPoint } from "@vivarium/kit/crash-point";
import { randomId } from "@vivarium/kit/id";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { lockOrg } from "../access/store.ts";
import { appendEntry } from "../audit/append.ts";
import { ApiError } from "../errors/api-error.ts";
import { useMachine } from "../guest/use-machine.ts";
import type { ArtifactDeps } from "./deps.ts";
import { type ArtifactRow, countPending, insertArtifact } from "./store.ts";

/** Wakes a paused session first: a wake that is refused refuses the capture. */
export async function requestCapture(
  deps: ArtifactDeps,
  scope: Scope,
  { sessionId, body, by }: { sessionId: string; body: ArtifactCapture; by: Caller },
): Promise<ArtifactRow> {
  const { result: session, release } = await useMachine(deps, scope, { sessionId }, async (live) => live);
  try {
    const artifact = await deps.db.transaction().execute(async (tx) => {
      await lockOrg(tx, scope.orgId);
      await refuseTooMany(await countPending(tx, scope.orgId));
      const id = ID_PREFIXES.artifact + randomId();
      const { org_id, project_id } = session;
      const row = await insertArtifact(tx, {
        id,
        org_id,
        project_id,
        session_id: sessionId,
        paths: body.paths,
      });
      await appendEntry(deps, tx, { by, action: "artifact.capture", target: id, sessionId });
      return row;
    });
    crashPoint("artifact.request");
    await deps.jobs.add("artifact_capture", artifact.id);
    crashPoint("artifact.added");
    return artifact;
  } finally {
    release();
  }
}

async function refuseTooMany(pending: number): Promise<void> {
  if (pending < LIMITS.artifactsPending) return;
  throw new ApiError(
    "rate_limited",
    `your organisation has ${pending} captures in progress, and may have ${LIMITS.artifactsPending}; wait for one`,
  );
}
