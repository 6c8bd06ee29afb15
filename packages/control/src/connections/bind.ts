/** Binds Connections to a session: at its create, and later. */
import { isDeepStrictEqual } from "node:util";
import type { ConnectionStatus, ParsedConnectionCreate } from "@vivarium/contract/api";
import { LIMITS } from "@vivarium/contract/api";
import { crashPoint } from "@vivarium/kit/crash-point";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { type AuditDeps, appendEntry } from "../audit/append.ts";
import { originOf, toStatus } from "../connection-records/status.ts";
import { type ConnectionRow, listConnections } from "../connection-records/store.ts";
import type { Queries } from "../db/pool.ts";
import { isApplied } from "../egress/apply.ts";
import { saveBoundNetwork } from "../egress/prepare.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvents, eventOf } from "../events/append.ts";
import { BUSY, whenFree } from "../operations/when-free.ts";
import type { Owner } from "../secrets/data-key.ts";
import { getSession } from "../sessions/get.ts";
import { isNetworkFixed } from "../sessions/operation-kinds.ts";
import type { SessionRow } from "../sessions/store.ts";
import { checkConnection, type NewConnection } from "./check.ts";
import { boundHostColumns } from "./columns.ts";
import { confirmed } from "./confirm.ts";
import type { ConnectionDeps } from "./deps.ts";
import { dataKeyOf, metaOf, remainingOf, requireUsable } from "./rules.ts";
import { isSameSecret, sealConnection } from "./seal.ts";
import { insertConnections, markConfirmed, releaseBind, renewBind, takeOverBind } from "./store.ts";
import { checkTotals } from "./totals.ts";

/** Writes the Connections of a session that is being made, in the transaction that makes it. */
export async function insertAtCreate(
  tx: Queries,
  { session, key }: { session: SessionRow; key: Buffer },
  connections: readonly NewConnection[],
): Promise<void> {
  const rows = await insertConnections(
    tx,
    session.id,
    connections.map((one) => sealConnection(key, session, one, 1)),
  );
  await appendEvents(
    tx,
    rows.map((row) => eventOf(session, "connection.created", eventData(row))),
  );
}

/**
 * In force when it resolves, or before a paused session runs again. Wakes nothing. The same request again finds the Connection of
 * one that was stored and not answered, because it came too late or its process died, and waits for that one.
 */
export async function bindConnection(
  deps: ConnectionDeps,
  scope: Scope,
  { id, body, by }: { id: string; body: ParsedConnectionCreate; by: Caller },
): Promise<ConnectionStatus> {
  let bound: { row: ConnectionRow; desired: SessionRow } | undefined;
  const attempt = async () => {
    const session = await getSession(deps.db, scope, id);
    if (!bound) {
      requireUsable(session);
      const against = againstOf(deps, session);
      // An equal request may have come when more of the session's lifetime was left.
      const wanted = checkConnection(body, { ...against, remainingS: undefined });
      if (session.ca_key === null)
        throw new ApiError(
          "conflict",
          "the session was made without Connections, so its guest trusts no authority; make a session that names one at its create",
        );
      if (isNetworkFixed(session.op)) return BUSY;
      const key = await dataKeyOf(deps, session);
      const bind = { session, wanted, key, by, check: () => checkConnection(body, against) };
      bound = await deps.db.transaction().execute((tx) => store(deps, tx, bind));
      if (!bound) return BUSY;
      crashPoint("bind.commit");
      deps.signals.moved(id);
    } else await renewBind(deps.db, bound.row);
    const { row } = bound;
    const desired = bound.desired.network_generation > session.network_generation ? bound.desired : session;
    const isInForce = await inForce(deps, desired).catch((error: unknown) => {
      throw isPending(error) ? madeButPending(error) : error;
    });
    if (!isInForce) return BUSY;
    crashPoint("bind.applied");
    await markConfirmed(deps.db, row);
    return toStatus(row);
  };
  try {
    return await whenFree(deps, id, attempt);
  } catch (error) {
    // An equal request need not wait. If this fails too, the claim lapses.
    if (bound) await releaseBind(deps.db, bound.row).catch(() => undefined);
    throw error;
  }
}

async function inForce(deps: ConnectionDeps, desired: SessionRow): Promise<boolean> {
  await confirmed(deps, desired.id);
  crashPoint("bind.pushed");
  return await isApplied(deps, desired);
}

const isPending = (error: unknown): error is ApiError =>
  error instanceof ApiError && error.code === "session_node_unavailable";

function madeButPending(cause: ApiError): ApiError {
  return new ApiError(cause.code, `the Connection is made; ${cause.message}`, { cause });
}

interface Bind {
  session: SessionRow;
  wanted: NewConnection;
  /** The same Connection, whose time fits what is left of the session's lifetime; throws if it does not. */
  check: () => NewConnection;
  key: Buffer;
  by: Caller;
}

/** Undefined when the session has changed meanwhile, or while an equal request is at work. */
async function store(deps: AuditDeps, tx: Queries, { session, wanted, check, key, by }: Bind) {
  const half = (await listConnections(tx, [session.id])).find((row) => isHalfDone(row, session, wanted, key));
  if (half) {
    // Another request may be at work on it, which answers its own caller.
    const row = await takeOverBind(tx, half);
    return row && { row, desired: session };
  }
  const connection = check();
  const { name, host } = connection;
  const desired = await saveBoundNetwork(tx, session, boundHostColumns(host));
  if (!desired) return undefined;
  const present = await listConnections(tx, [session.id]);
  refuseConflict(present, connection);
  checkTotals(present, connection);
  const owner: Owner = session;
  const sealed = sealConnection(key, owner, connection, desired.connections_version);
  const [row] = await insertConnections(tx, session.id, [{ ...sealed, isBind: true }]);
  if (!row) throw new Error("a Connection was not written");
  await appendEvents(tx, [eventOf(session, "connection.created", eventData(row))]);
  const entry = { by, target: name, sessionId: session.id, meta: metaOf(row) };
  await appendEntry(deps, tx, { action: "connection.create", ...entry });
  return { row, desired };
}

/**
 * Whether this Connection is what an equal request has stored whose caller got no answer. Only who knows the credential makes an
 * equal one. A Connection of before `asked_ttl_s` counts as one of a request that named no time.
 */
function isHalfDone(row: ConnectionRow, session: SessionRow, wanted: NewConnection, key: Buffer): boolean {
  const { sealed, bind_claimed_until: claim, name, host } = row;
  if (claim === null || sealed === null || row.is_expired) return false;
  if (name !== wanted.name || host !== wanted.host) return false;
  const rules = [row.auth_type, row.header_name, row.methods, row.paths, row.asked_ttl_s];
  const same = [wanted.authType, wanted.headerName, wanted.methods, wanted.paths, wanted.askedTtlS];
  return isDeepStrictEqual(rules, same) && isSameSecret(key, session, { ...row, sealed }, wanted);
}

function refuseConflict(present: readonly ConnectionRow[], { name, host }: NewConnection): void {
  const sameName = present.find((one) => one.name === name);
  const sameHost = present.find((one) => one.host === host);
  const ended = (row: ConnectionRow) => (row.revoked_at ? ", which was revoked and keeps it" : "");
  if (sameName)
    throw new ApiError(
      "conflict",
      `name: the session has a Connection ${name}${ended(sameName)}; replace it with PUT, or choose another name`,
    );
  if (sameHost)
    throw new ApiError(
      "conflict",
      `origin: ${originOf({ host })} is bound to the Connection ${sameHost.name}${ended(sameHost)}`,
    );
  if (present.length >= LIMITS.connectionsPerSession)
    throw new ApiError(
      "conflict",
      `the session has ${LIMITS.connectionsPerSession} Connections, which is the most; those that were revoked count`,
    );
}

const againstOf = ({ ownHosts }: ConnectionDeps, session: SessionRow) => ({
  policy: session.egress,
  ownHosts,
  remainingS: remainingOf(session),
});

const eventData = (row: ConnectionRow) => ({ name: row.name, origin: originOf(row) });
