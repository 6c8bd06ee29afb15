/**
 * Images that sessions have written as OCI layouts. The node reads a layout out of the session's machine, which control wakes
 * for it and keeps from idling.
 */
import { posix } from "node:path";
import { LIMITS, type TemplateImport } from "@vivarium/contract/api";
import type { BuildSpec } from "@vivarium/contract/node";
import type { Scope } from "../access/principal.ts";
import { ApiError } from "../errors/api-error.ts";
import { useMachine } from "../guest/use-machine.ts";
import { getReadable } from "../sessions/get.ts";
import { machineIdOf } from "../sessions/state.ts";
import type { BuildRow } from "../templates/build-store.ts";
import type { BuildDeps } from "./deps.ts";
import { noteProgress } from "./store.ts";

/** The part of a build's row that says where its image comes from. */
export type LayoutName = Pick<BuildRow, "reference" | "session_id" | "layout">;
type LayoutOfSession = NonNullable<TemplateImport["from_layout"]>;

const ROOT = "/workspace";
/** States in which no machine will run again. */
const ENDED = ["failed", "lifetime_expired", "node_lost"] as const;
/** A session may take longer to wake than a claim on a build is good for. */
const RENEW_MS = 5_000;
/** Codes after which no further attempt would find the session. */
const FINAL: ReadonlySet<string> = new Set(["not_found", "conflict", "session_ended", "session_node_lost"]);

export async function nameLayout(
  { db }: Pick<BuildDeps, "db">,
  scope: Scope,
  { session_id: id, path }: LayoutOfSession,
): Promise<LayoutName> {
  const layout = posix.resolve(ROOT, path);
  if (layout.length > LIMITS.imageReferenceChars)
    throw new ApiError(
      "validation",
      `from_layout.path: must be at most ${LIMITS.imageReferenceChars} characters long`,
    );
  await getReadable(db, scope, id, ENDED);
  return { reference: `oci:${id}${layout}`, session_id: id, layout };
}

/** Keeps the session of a layout from idling until the result is called. */
export function keepAwake({ activity }: BuildDeps, { org_id, session_id: id }: BuildRow): () => void {
  if (id === null) return () => {};
  const { confirm, release } = activity.lease(org_id, id);
  confirm();
  return release;
}

/** Wakes the session if it is paused. Rejects with ApiError. */
export async function findLayout(
  deps: BuildDeps,
  { id, org_id: orgId, session_id: sessionId, layout }: BuildRow,
): Promise<Pick<BuildSpec, "layout" | "machine_id">> {
  if (sessionId === null || layout === null) return {};
  const renewing = setInterval(() => void noteProgress(deps.db, id, null).catch(() => {}), RENEW_MS);
  try {
    const scope = { orgId, projectId: null };
    const live = await useMachine(deps, scope, { sessionId }, async (session) => machineIdOf(session));
    live.release();
    return { layout, machine_id: live.result };
  } finally {
    clearInterval(renewing);
  }
}

/** The failure of a build whose session cannot be used. */
export function failureOfSession({ code, message }: ApiError) {
  const isOver = FINAL.has(code);
  const word = isOver ? ("image_not_found" as const) : ("internal" as const);
  return { word, message: `the session with the image: ${message}`, is_transient: !isOver };
}
