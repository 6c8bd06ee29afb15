/** Renders Connections. */
import type { Connection } from "@vivarium/sdk";
import { renderFields, renderTable } from "./table.ts";
import { formatAge } from "./time.ts";

const HEADINGS = ["NAME", "ORIGIN", "STATE", "METHODS", "PATHS", "EXPIRES", "USED"];

export function renderConnections(connections: Connection[], now: Date): string {
  if (connections.length === 0)
    return "No Connections. A session has those that its create named, and later ones.";
  const rows = connections.map((connection) => [
    connection.name,
    connection.origin,
    stateOf(connection),
    wordsOf(connection.allow.methods),
    wordsOf(connection.allow.paths),
    connection.expires_at,
    connection.last_used_at ? formatAge(now.getTime() - Date.parse(connection.last_used_at)) : "never",
  ]);
  return renderTable(HEADINGS, rows);
}

export function renderConnection(connection: Connection): string {
  return renderFields([
    ["name", connection.name],
    ["origin", connection.origin],
    ["state", stateOf(connection)],
    ["header", `${connection.header_name} (${connection.auth_type})`],
    ["methods", wordsOf(connection.allow.methods)],
    ["paths", wordsOf(connection.allow.paths)],
    ["created", connection.created_at],
    ["expires", connection.expires_at],
  ]);
}

/** `payments` or, when it does not work, `payments (revoked)`. */
export function renderShortConnection(connection: Connection): string {
  const state = stateOf(connection);
  return state === "active" ? connection.name : `${connection.name} (${state})`;
}

function stateOf({ state, suspended }: Connection): string {
  return state === "active" && suspended ? "suspended" : state;
}

function wordsOf(items: string[]): string {
  return items.length === 0 ? "none" : items.join(" ");
}
