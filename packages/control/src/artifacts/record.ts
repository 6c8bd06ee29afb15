/** Turns artifacts into their manifests. */
import type { Artifact } from "@vivarium/contract/api";
import type { Queries } from "../db/pool.ts";
import { contentTypeOf } from "./content-type.ts";
import { linkTo } from "./links.ts";
import { type ArtifactRow, listFiles } from "./store.ts";

interface RecordDeps {
  db: Queries;
  linkKey: Buffer;
  publicUrl: string;
}

export async function toManifest(deps: RecordDeps, row: ArtifactRow): Promise<Artifact> {
  const [manifest] = await toManifests(deps, [row]);
  return manifest as Artifact;
}

export async function toManifests(deps: RecordDeps, rows: readonly ArtifactRow[]): Promise<Artifact[]> {
  const ready = rows.filter(({ state }) => state === "ready").map(({ id }) => id);
  const files = Map.groupBy(await listFiles(deps.db, ready), ({ artifact_id }) => artifact_id);
  return rows.map((row) => ({
    id: row.id,
    status: row.state,
    session_id: row.session_id,
    captured_at: row.captured_at.toISOString(),
    expires_at: row.expires_at.toISOString(),
    ...(row.state === "ready" && {
      files: (files.get(row.id) ?? []).map(({ position, path, size_bytes }) => {
        const type = contentTypeOf(path);
        return {
          path,
          url: linkTo(deps, { artifactId: row.id, position, expiresAt: row.expires_at }),
          size_bytes,
          ...(type !== undefined && { content_type: type }),
        };
      }),
    }),
    ...(row.error !== null && { error: row.error }),
  }));
}
