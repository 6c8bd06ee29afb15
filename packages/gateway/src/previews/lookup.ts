/** Finds routes and machines in the tables through an index, since tables can have thousands. */
import type { GatewaySlot, GatewayTables, PreviewRoute } from "@vivarium/contract/gateway";

export interface Backend {
  machineId: string;
  address: string;
}

interface Index {
  routes: Map<string, PreviewRoute>;
  slots: Map<string, GatewaySlot>;
}

const indices = new WeakMap<GatewayTables, Index>();

export const routeKey = (sessionId: string, port: number): string => `${port}-${sessionId}`;

export function routeOf(
  tables: GatewayTables,
  at: { sessionId: string; port: number },
): PreviewRoute | undefined {
  return indexOf(tables).routes.get(routeKey(at.sessionId, at.port));
}

/** The session's current machine; undefined when it has none on this node. */
export function backendOf(tables: GatewayTables, sessionId: string): Backend | undefined {
  const slot = indexOf(tables).slots.get(sessionId);
  if (slot?.machine === undefined) return undefined;
  return { machineId: slot.machine.machine_id, address: slot.machine_address };
}

function indexOf(tables: GatewayTables): Index {
  const known = indices.get(tables);
  if (known) return known;
  const index = {
    routes: new Map(tables.routes.map((route) => [routeKey(route.session_id, route.port), route])),
    slots: new Map(tables.slots.flatMap((slot) => (slot.machine ? [[slot.machine.session_id, slot]] : []))),
  };
  indices.set(tables, index);
  return index;
}
