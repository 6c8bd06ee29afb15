/** Replaces a Connection's credential, rules and time as a whole. Its name and origin stay. Wakes nothing. */
import type { ConnectionStatus, ParsedConnectionReplace } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { Scope } from "../access/principal.ts";
import { appendEntry } from "../audit/append.ts";
import { originOf, toStatus } from "../connection-records/status.ts";
import { type ConnectionRow, listConnections } from "../connection-records/store.ts";
import { ApiError } from "../errors/api-error.ts";
import { appendEvent, eventOf } from "../events/append.ts";
import { invalidField } from "../http/validation.ts";
import { getSession } from "../sessions/get.ts";
import type { SessionRow } from "../sessions/store.ts";
import { checkConnection, type NewConnection } from "./check.ts";
import { confirmed } from "./confirm.ts";
import type { ConnectionDeps } from "./deps.ts";
import { connectionNotFound, dataKeyOf, metaOf, remainingOf, requireUsable } from "./rules.ts";
import { sealConnection } from "./seal.ts";
import { raiseVersion, replaceConnectionRow } from "./store.ts";
import { checkTotals } from "./totals.ts";

/** The new credential is used from the answer on, and requests under the old one are cut. */
export async function replaceConnection(
  deps: ConnectionDeps,
  scope: Scope,
  { id, name, body, by }: { id: string; name: string; body: ParsedConnectionReplace; by: Caller },
): Promise<ConnectionStatus> {
  const session = await getSession(deps.db, scope, id);
  requireUsable(session);
  const [known] = (await listConnections(deps.db, [id])).filter((one) => one.name === name);
  if (!known) throw connectionNotFound(name);
  const connection = checkReplacement(deps, { session, known, body });
  if (known.revoked_at) throw wasRevoked(name);
  const row = await store(deps, { session, known, connection, by });
  await confirmed(deps, id);
  return toStatus(row);
}

function checkReplacement(
  { ownHosts }: ConnectionDeps,
  { session, known, body }: { session: SessionRow; known: ConnectionRow; body: ParsedConnectionReplace },
): NewConnection {
  if (body.name != null && body.name !== known.name)
    throw invalidField("name", `must be ${known.name}, the name in the path, or be left out`, body.name);
  const against = { policy: session.egress, ownHosts, remainingS: remainingOf(session) };
  const connection = checkConnection({ ...body, name: known.name }, against);
  if (connection.host !== known.host)
    throw invalidField(
      "origin",
      `must be ${originOf(known)}: a Connection keeps its origin; make another one`,
    );
  return connection;
}

interface Replacement {
  session: SessionRow;
  known: ConnectionRow;
  connection: NewConnection;
  by: Caller;
}

async function store(
  deps: ConnectionDeps,
  { session, known, connection, by }: Replacement,
): Promise<ConnectionRow> {
  const { id } = session;
  const key = await dataKeyOf(deps, session);
  return await deps.db.transaction().execute(async (tx) => {
    const generation = (await raiseVersion(tx, id))?.connections_version;
    if (generation === undefined) throw wasRevoked(known.name);
    const others = (await listConnections(tx, [id])).filter(({ name }) => name !== known.name);
    checkTotals(others, connection);
    const sealed = sealConnection(key, session, connection, generation);
    const row = await replaceConnectionRow(tx, known, sealed);
    if (!row) throw wasRevoked(known.name);
    await appendEvent(tx, eventOf(session, "connection.replaced", { name: row.name, origin: originOf(row) }));
    const entry = { by, target: row.name, sessionId: id, meta: metaOf(row) };
    await appendEntry(deps, tx, { action: "connection.replace", ...entry });
    return row;
  });
}

function wasRevoked(name: string): ApiError {
  return new ApiError(
    "conflict",
    `the Connection ${name} was revoked or replaced meanwhile; one that was revoked stays so for the session's life`,
  );
}
