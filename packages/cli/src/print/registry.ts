/** Renders credentials for registries as a table, and one credential as fields. */
import type { RegistryCredential } from "@vivarium/sdk";
import { renderFields, renderTable, withoutEmptyColumns } from "./table.ts";
import { formatAge } from "./time.ts";

export function renderCredentials(credentials: RegistryCredential[], now: Date): string {
  const rows = credentials.map((one) => [
    one.name,
    one.registry_host,
    one.username,
    secretOf(one),
    formatAge(now.getTime() - Date.parse(one.created_at)),
    one.project_id ?? "",
  ]);
  return renderTable(
    ...withoutEmptyColumns(["NAME", "REGISTRY", "USER", "SECRET", "AGE", "PROJECT"], rows, 5),
  );
}

export function renderCredential(credential: RegistryCredential): string {
  return renderFields([
    ["name", credential.name],
    ["registry", credential.registry_host],
    ["user", credential.username],
    ["secret", secretOf(credential)],
    ["project", credential.project_id],
    ["created", credential.created_at],
  ]);
}

const secretOf = ({ secret_last4: end }: RegistryCredential) => `…${end ?? ""}`;
