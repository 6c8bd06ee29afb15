/** Renders API keys and projects. */
import type { ApiKey, ApiKeyCreated, Project } from "@vivarium/sdk";
import { renderFields, renderTable, withoutEmptyColumns } from "./table.ts";
import { formatAge } from "./time.ts";

export function renderKeys(keys: ApiKey[], projects: Project[], now: Date): string {
  const nameOf = new Map(projects.map(({ id, name }) => [id, name]));
  const age = (at: string | undefined) => (at ? formatAge(now.getTime() - Date.parse(at)) : "");
  const rows = keys.map((key) => [
    key.id,
    key.name,
    key.prefix ? `${key.prefix}…` : "",
    key.role,
    age(key.created_at),
    key.last_used_at ? age(key.last_used_at) : "never",
    key.project_id ? (nameOf.get(key.project_id) ?? key.project_id) : "",
    key.concurrent_sessions === undefined ? "" : String(key.concurrent_sessions),
    key.expires_at ?? "",
  ]);
  const headings = ["ID", "NAME", "KEY", "ROLE", "AGE", "USED", "PROJECT", "SESSIONS", "EXPIRES"];
  return renderTable(...withoutEmptyColumns(headings, rows, 6));
}

export function renderCreatedKey(key: ApiKeyCreated): string {
  return renderFields([
    ["key", key.key],
    ["id", key.id],
    ["name", key.name],
    ["role", key.role],
    ["project", key.project_id],
    ["sessions", key.concurrent_sessions?.toString()],
    ["expires", key.expires_at],
  ]);
}

export function renderProjects(projects: Project[], now: Date): string {
  const rows = projects.map((project) => [
    project.id,
    project.name,
    formatAge(now.getTime() - Date.parse(project.created_at)),
    project.is_default ? "yes" : "",
    Object.entries(project.labels ?? {})
      .map(([key, value]) => `${key}=${value}`)
      .join(" "),
  ]);
  return renderTable(...withoutEmptyColumns(["ID", "NAME", "AGE", "DEFAULT", "LABELS"], rows, 4));
}
