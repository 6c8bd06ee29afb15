/** Renders artifacts as a table, and one artifact as fields and files. */
import { ARTIFACT_ID_PATTERN } from "@vivarium/contract/api/ids";
import type { Artifact } from "@vivarium/sdk";
import { formatBytes } from "./bytes.ts";
import { noPaint, type Paint } from "./paint.ts";
import { renderFields, renderTable } from "./table.ts";

export const isArtifactId = (text: string) => ARTIFACT_ID_PATTERN.test(text);

const sizeOf = ({ files = [] }: Artifact) => files.reduce((sum, file) => sum + file.size_bytes, 0);

export function renderArtifacts(artifacts: Artifact[], paint: Paint = noPaint): string {
  if (artifacts.length === 0) return "No artifacts. Make one with: viv artifacts capture SESSION PATH";
  const rows = artifacts.map((artifact) => [
    artifact.id,
    artifact.status,
    artifact.files ? String(artifact.files.length) : "",
    artifact.files ? formatBytes(sizeOf(artifact)) : "",
    artifact.expires_at.slice(0, 10),
    artifact.error ?? "",
  ]);
  return renderTable(["ID", "STATUS", "FILES", "SIZE", "EXPIRES", "ERROR"], rows, (padded, { row }) =>
    row === 0 ? paint("dim", padded) : padded,
  );
}

export function renderArtifact(artifact: Artifact): string {
  const fields = renderFields([
    ["id", artifact.id],
    ["status", artifact.status],
    ["session", artifact.session_id],
    ["captured", artifact.captured_at],
    ["expires", artifact.expires_at],
    ["error", artifact.error],
  ]);
  if (!artifact.files) return fields;
  const rows = artifact.files.map((file) => [
    file.path,
    formatBytes(file.size_bytes),
    file.content_type ?? "",
  ]);
  return `${fields}\n\n${renderTable(["PATH", "SIZE", "TYPE"], rows)}`;
}
