/** Makes, or changes, the way from outside to a port of the guest (interface "Expose rules"). */

import { type Exposed, type ExposeRequest, LIMITS } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { Queries } from "../db/pool.ts";
import type { Activity } from "../deadlines/activity.ts";
import { applyForCaller } from "../egress/apply.ts";
import { wishExposed } from "../egress/prepare.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import { apiErrorOfOperation } from "../fleet/api-error-of-node.ts";
import { NodeError } from "../fleet/node-error.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { wakeSession } from "../moves/wake.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import { getSession } from "../sessions/get.ts";
import { notUsable } from "../sessions/not-usable.ts";
import { isNetworkFixed } from "../sessions/operation-kinds.ts";
import type { PreviewUrls } from "../sessions/preview-urls.ts";
import type { SessionRow } from "../sessions/store.ts";
import { type Decision, decideExpose, type RouteSettings } from "./decide.ts";
import { toExposed } from "./exposed.ts";
import { checkLoginUrl } from "./login-url.ts";
import type { PreviewPush } from "./push.ts";
import { newToken, seal, sha256Hex, unseal } from "./secrets.ts";
import {
  countRoutes,
  findRoute,
  listExposed,
  lockSession,
  markTold,
  nextRouteVersion,
  putRoute,
  type RouteRow,
  shownOf,
} from "./store.ts";
import type { Turns } from "./turns.ts";

export type ExposeDeps = MoveDeps &
  PreviewUrls & { previewKey: Buffer; previewPush: PreviewPush; exposeTurns: Turns; activity: Activity };

/** A route as it is after the call, with the tokens that the answer tells. */
export interface Route {
  session: SessionRow;
  row: RouteRow;
  result: Decision["result"];
  ingressToken?: string;
  authToken?: string;
}

interface Ask {
  port: number;
  settings: RouteSettings;
  rotate: boolean;
}

export async function exposePort(
  deps: ExposeDeps,
  scope: Scope,
  { id, body }: { id: string; body: ExposeRequest },
): Promise<Exposed> {
  const ask = {
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

async function attempt(deps: ExposeDeps, session: SessionRow, ask: Ask): Promise<Route | typeof BUSY> {
  if (session.state === "creating") return BUSY;
  if (session.state !== "live" && session.state !== "paused") throw notUsable(session);
  const known = await findRoute(deps.db, session.id, ask.port);
  const decision = decideOn(known, ask);
  if (decision.result === "unchanged" && known)
    return await bringIntoForce(deps, unchanged(deps, session, known));
  if (!known) await checkRoom(deps.db, session.id);
  if (isNetworkFixed(session.op)) return BUSY;
  if (session.state === "paused") {
    if (session.op === null) await wakeSession(deps, session, "operation_wake");
    return BUSY;
  }
  return await deps.exposeTurns.take(`${session.id} ${ask.port}`, () => carryOut(deps, session, ask));
}

/** In one turn: a bearer token that is on its way to its caller is not minted again by the next call meanwhile. */
async function carryOut(deps: ExposeDeps, session: SessionRow, ask: Ask): Promise<Route | typeof BUSY> {
  const route = await deps.db.transaction().execute((tx) => write(deps, tx, session, ask));
  return route === BUSY ? BUSY : await bringIntoForce(deps, route);
}

function decideOn(row: RouteRow | undefined, { settings, rotate }: Ask): Decision {
  const stored = row && {
    visibility: row.visibility,
    auth: row.auth,
    loginUrl: row.login_url,
    isBearerTold: row.is_bearer_told,
  };
  return decideExpose(stored, settings, { rotate });
}

function unchanged(deps: ExposeDeps, session: SessionRow, row: RouteRow): Route {
  return { session, row, result: "unchanged", ingressToken: openToken(deps, session, row) };
}

/** Decided anew under the lock: two calls for one port come one after the other. */
async function write(
  deps: ExposeDeps,
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
  if (!known) await checkRoom(tx, id);
  const made = await credentials(deps, tx, session, known, { ask, decision });
  await putRoute(tx, made.row);
  const wish = await wishExposed(tx, session, await listExposed(tx, id));
  const type = decision.result === "created" ? "preview.exposed" : "preview.updated";
  await appendEvent(tx, eventOf(wish, type, shownOf(made.row)));
  return { ...made, session: wish, result: decision.result };
}

async function checkRoom(db: Queries, sessionId: string): Promise<void> {
  if ((await countRoutes(db, sessionId)) < LIMITS.previewsPerSession) return;
  throw new ApiError(
    "conflict",
    `port: this session has ${LIMITS.previewsPerSession} exposed ports already; unexpose one first`,
  );
}

async function credentials(
  deps: ExposeDeps,
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
  const place = { orgId: session.org_id, sessionId: session.id, port: ask.port };
  const row = {
    session_id: session.id,
    port: ask.port,
    version: known && !decision.isNewVersion ? known.version : await nextRouteVersion(tx),
    visibility,
    auth,
    sealed_token: ingressToken === undefined ? null : seal(deps.previewKey, place, ingressToken),
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

function openToken({ previewKey }: ExposeDeps, session: SessionRow, row: RouteRow): string | undefined {
  if (row.sealed_token === null) return undefined;
  const place = { orgId: session.org_id, sessionId: session.id, port: row.port };
  return unseal(previewKey, place, row.sealed_token);
}

/**
 * The port first, then the way to it. What nobody confirms, also of an earlier call, stays stored, and the sweep goes on
 * with it. Of a paused session nothing has to be in force yet.
 */
async function bringIntoForce(deps: ExposeDeps, route: Route): Promise<Route> {
  const { session, row, authToken } = route;
  if (session.state !== "live") return route;
  if (session.network_applied < session.network_generation) await applyForCaller(deps, session);
  await ensurePushed(deps);
  if (authToken !== undefined) await markTold(deps.db, row);
  return route;
}

export async function ensurePushed({ previewPush }: Pick<ExposeDeps, "previewPush">): Promise<void> {
  try {
    await previewPush.ensure();
  } catch (error) {
    if (!(error instanceof NodeError)) throw error;
    throw apiErrorOfOperation(error);
  }
}
