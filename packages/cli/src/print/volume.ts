/** Renders volumes as a table, and one volume as fields. */
import type { Volume } from "@vivarium/sdk";
import { renderFields, renderTable } from "./table.ts";
import { formatAge } from "./time.ts";

export function renderVolumes(volumes: Volume[], now: Date): string {
  const age = (at: string) => formatAge(now.getTime() - Date.parse(at));
  const rows = volumes.map((volume) => [
    volume.id,
    `${volume.size_gb} GB`,
    volume.session_id ?? "",
    volume.last_saved_at ? age(volume.last_saved_at) : "never",
    age(volume.created_at),
  ]);
  return renderTable(["VOLUME", "SIZE", "SESSION", "SAVED", "AGE"], rows);
}

export function renderVolume(volume: Volume): string {
  return renderFields([
    ["volume", volume.id],
    ["size", `${volume.size_gb} GB`],
    ["session", volume.session_id],
    ["saved", volume.last_saved_at],
    ["created", volume.created_at],
  ]);
}
