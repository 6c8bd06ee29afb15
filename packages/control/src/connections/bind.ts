/** Binds Connections to a session: at its create, and later. */
import type { ConnectionStatus, ParsedConnectionCreate } from "@vivarium/contract/api";
import { LIMITS } from "@vivarium/contract/api";
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
import { sealConnection } from "./seal.ts";
import { insertConnections } from "./store.ts";
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

/** In force when it resolves, or before a paused session runs again. Wakes nothing. */
export async function bindConnection(
  deps: ConnectionDeps,
  scope: Scope,
  { id, body, by }: { id: string; body: ParsedConnectionCreate; by: Caller },
): Promise<ConnectionStatus> {
  let bound: { row: ConnectionRow; desired: SessionRow } | undefined;
  return await whenFree(deps, id, async () => {
    const session = await getSession(deps.db, scope, id);
    if (!bound) {
      requireUsable(session);
      const connection = checkConnection(body, againstOf(deps, session));
      if (session.ca_key === null)
        throw new ApiError(
          "conflict",
          "the session was made without Connections, so its guest trusts no authority; make a session that names one at its create",
        );
      if (isNetworkFixed(session.op)) return BUSY;
      const key = await dataKeyOf(deps, session);
      bound = await deps.db.transaction().execute((tx) => store(deps, tx, { session, connection, key, by }));
      if (!bound) return BUSY;
      deps.signals.moved(id);
    }
    const { row } = bound;
    const desired = bound.desired.network_generation > session.network_generation ? bound.desired : session;
    const isInForce = await inForce(deps, desired).catch((error: unknown) => {
      throw isPending(error) ? madeButPending(error) : error;
    });
    return isInForce ? toStatus(row) : BUSY;
  });
}

async function inForce(deps: ConnectionDeps, desired: SessionRow): Promise<boolean> {
  await confirmed(deps, desired.id);
  return await isApplied(deps, desired);
}

const isPending = (error: unknown): error is ApiError =>
  error instanceof ApiError && error.code === "session_node_unavailable";

/** Without Retry-After: the Connection exists, so the same request again would be in conflict with it. */
function madeButPending(cause: ApiError): ApiError {
  return new ApiError(cause.code, `the Connection is made; ${cause.message}`, { cause, retryAfterS: null });
}

interface Bind {
  session: SessionRow;
  connection: NewConnection;
  key: Buffer;
  by: Caller;
}

/** Undefined when the session has changed meanwhile. */
async function store(deps: AuditDeps, tx: Queries, { session, connection, key, by }: Bind) {
  const { name, host } = connection;
  const desired = await saveBoundNetwork(tx, session, boundHostColumns(host));
  if (!desired) return undefined;
  const present = await listConnections(tx, [session.id]);
  refuseConflict(present, connection);
  checkTotals(present, connection);
  const owner: Owner = session;
  const sealed = sealConnection(key, owner, connection, desired.connections_version);
  const [row] = await insertConnections(tx, session.id, [sealed]);
  if (!row) throw new Error("a Connection was not written");
  await appendEvents(tx, [eventOf(session, "connection.created", eventData(row))]);
  const entry = { by, target: name, sessionId: session.id, meta: metaOf(row) };
  await appendEntry(deps, tx, { action: "connection.create", ...entry });
  return { row, desired };
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
