/** Exposes a port of the guest under a URL, or changes how it is exposed (docs/spec/network.md). */
import { type Exposed, type ExposeRequest, LIMITS } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import type { Queries } from "../db/pool.ts";
import { applyForCaller } from "../egress/apply.ts";
import { saveExposedPorts } from "../egress/prepare.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import { apiErrorOfOperation } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import { wakeSession } from "../moves/wake.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { isNetworkFixed } from "../sessions/operation-kinds.ts";
import { type PreviewUrls, previewUrl, withToken } from "../sessions/preview-urls.ts";
import type { SessionRow } from "../sessions/store.ts";
import { type Decision, decideExpose, type RouteSettings } from "./decide.ts";
import type { PreviewDeps } from "./deps.ts";
import { checkLoginUrl } from "./login-url.ts";
import { newToken, seal, sha256Hex, unseal } from "./secrets.ts";
import {
  countRoutes,
  findRoute,
  listExposed,
  lockSession,
  markBearerDelivered,
  nextVersion,
  publicFields,
  putRoute,
  type RouteRow,
} from "./store.ts";

/** A route after the call, with the tokens for the answer. */
export interface Route {
  session: SessionRow;
  row: RouteRow;
  result: Decision["result"];
  ingressToken?: string;
  authToken?: string;
}

interface Ask {
  by: Caller;
  port: number;
  settings: RouteSettings;
  rotate: boolean;
}

export async function exposePort(
  deps: PreviewDeps,
  scope: Scope,
  { id, body, by }: { id: string; body: ExposeRequest; by: Caller },
): Promise<Exposed> {
  const ask = {
    by,
    port: body.port,
    settings: {
      visibility: body.visibility ?? "token",
      auth: body.auth ?? "none",
      loginUrl: checkLoginUrl(body.login_url),
    },
    rotate: body.rotate ?? false,
  };
  const route = await whenFree(
    deps,
    id,
    async () => {
      const session = await getSession(deps.db, scope, id);
      deps.activity.touch(session.id);
      return await attempt(deps, session, ask);
    },
    { waitMs: LIMITS.creatingWaitMs },
  );
  return toExposed(deps, route);
}

async function attempt(deps: PreviewDeps, session: SessionRow, ask: Ask): Promise<Route | typeof BUSY> {
  if (session.state === "creating") return BUSY;
  if (session.state !== "live" && session.state !== "paused") throw notUsable(session);
  const known = await findRoute(deps.db, session.id, ask.port);
  const decision = decideOn(known, ask);
  if (decision.result === "unchanged" && known)
    return await applyRoute(deps, unchanged(deps, session, known));
  if (!known) await checkRouteCount(deps.db, session.id);
  if (isNetworkFixed(session.op)) return BUSY;
  if (session.state === "paused") {
    if (session.op === null) await wakeSession(deps, session, "operation_wake");
    return BUSY;
  }
  // Serial by port, so that the next call does not replace a bearer token that is still on its way to its caller.
  return await deps.exposeQueue.run(`${session.id} ${ask.port}`, async () => {
    const route = await deps.db.transaction().execute((tx) => write(deps, tx, session, ask));
    return route === BUSY ? BUSY : await applyRoute(deps, route);
  });
}

function decideOn(row: RouteRow | undefined, { settings, rotate }: Ask): Decision {
  const stored = row && {
    visibility: row.visibility,
    auth: row.auth,
    loginUrl: row.login_url,
    isBearerDelivered: row.is_bearer_told,
  };
  return decideExpose(stored, settings, { rotate });
}

function unchanged(deps: PreviewDeps, session: SessionRow, row: RouteRow): Route {
  return { session, row, result: "unchanged", ingressToken: openToken(deps, session, row) };
}

/** Decides again under the lock of the session's row, because another call may have changed the route meanwhile. */
async function write(
  deps: PreviewDeps,
  tx: Queries,
  { id, incarnation }: SessionRow,
  ask: Ask,
): Promise<Route | typeof BUSY> {
  const session = await lockSession(tx, id);
  if (session?.state !== "live" || session.incarnation !== incarnation) return BUSY;
  if (isNetworkFixed(session.op)) return BUSY;
  const known = await findRoute(tx, id, ask.port);
  const decision = decideOn(known, ask);
  if (decision.result === "unchanged" && known) return unchanged(deps, session, known);
  if (!known) await checkRouteCount(tx, id);
  const made = await credentials(deps, tx, session, known, { ask, decision });
  await putRoute(tx, made.row);
  const desired = await saveExposedPorts(tx, session, await listExposed(tx, id));
  const type = decision.result === "created" ? "preview.exposed" : "preview.updated";
  await appendEvent(tx, eventOf(desired, type, publicFields(made.row)));
  const { port, visibility, auth } = made.row;
  const entry = {
    action: "preview.expose",
    target: id,
    sessionId: id,
    meta: { port, visibility, auth },
  } as const;
  await appendEntry(deps, tx, { by: ask.by, ...entry });
  return { ...made, session: desired, result: decision.result };
}

async function checkRouteCount(db: Queries, sessionId: string): Promise<void> {
  if ((await countRoutes(db, sessionId)) < LIMITS.previewsPerSession) return;
  throw new ApiError(
    "conflict",
    `port: this session has ${LIMITS.previewsPerSession} exposed ports already; unexpose one first`,
  );
}

async function credentials(
  deps: PreviewDeps,
  tx: Queries,
  session: SessionRow,
  known: RouteRow | undefined,
  { ask, decision }: { ask: Ask; decision: Decision },
): Promise<Pick<Route, "row" | "ingressToken" | "authToken">> {
  const { visibility, auth, loginUrl } = ask.settings;
  const ingressToken =
    decision.token === "mint"
      ? newToken()
      : known && visibility === "token"
        ? openToken(deps, session, known)
        : undefined;
  const authToken = decision.bearer === "mint" ? newToken() : undefined;
  const context = { orgId: session.org_id, sessionId: session.id, port: ask.port };
  const row = {
    session_id: session.id,
    port: ask.port,
    version: known && !decision.isNewVersion ? known.version : await nextVersion(tx, "preview_versions"),
    visibility,
    auth,
    sealed_token: ingressToken === undefined ? null : seal(deps.previewKey, context, ingressToken),
    token_sha256: ingressToken === undefined ? null : sha256Hex(ingressToken),
    bearer_sha256:
      authToken !== undefined
        ? sha256Hex(authToken)
        : auth === "bearer"
          ? (known?.bearer_sha256 ?? null)
          : null,
    is_bearer_told: auth === "bearer" && authToken === undefined,
    login_url: loginUrl,
  };
  return { row, ingressToken, authToken };
}

function openToken({ previewKey }: PreviewDeps, session: SessionRow, row: RouteRow): string | undefined {
  if (row.sealed_token === null) return undefined;
  const context = { orgId: session.org_id, sessionId: session.id, port: row.port };
  return unseal(previewKey, context, row.sealed_token);
}

/**
 * Opens the port, then sends the route to the gateway. If the node does not confirm, the sweep repeats both from the
 * rows. For a paused session nothing is sent.
 */
async function applyRoute(deps: PreviewDeps, route: Route): Promise<Route> {
  const { session, row, authToken } = route;
  if (session.state !== "live") return route;
  if (session.network_applied < session.network_generation) await applyForCaller(deps, session);
  await ensurePushed(deps);
  if (authToken !== undefined) await markBearerDelivered(deps.db, row);
  return route;
}

function toExposed({ previewSite }: PreviewUrls, route: Route): Exposed {
  const { session, row, result, ingressToken, authToken } = route;
  const url = previewUrl(previewSite, session.id, row.port);
  const lifetimeMs = session.max_lifetime_ms;
  return {
    session_id: session.id,
    port: row.port,
    preview_url: ingressToken === undefined ? url : withToken(url, ingressToken),
    visibility: row.visibility,
    auth: row.auth,
    result,
    ...(session.state === "live" && session.guest_ip !== null && { guest_ip: session.guest_ip }),
    ...(ingressToken !== undefined && { ingress_token: ingressToken }),
    ...(authToken !== undefined && { auth_token: authToken }),
    ...(row.login_url !== null && { login_url: row.login_url }),
    // A route lives as long as its session.
    ...(lifetimeMs !== null && {
      expires_at: new Date(session.created_at.getTime() + lifetimeMs).toISOString(),
    }),
  };
}

export async function ensurePushed({ previewPush }: Pick<PreviewDeps, "previewPush">): Promise<void> {
  await previewPush.ensure().catch((error: unknown) => {
    throw error instanceof NodeError ? apiErrorOfOperation(error) : error;
  });
}
