import type { FileContent, FileEntries, FileWriteResult, LegacyFileCall } from "@vivarium/contract/api";
import type { Scope } from "../access/principal.ts";
import type { MoveDeps } from "../moves/deps.ts";
import { FILES_ROOT } from "./paths.ts";
import { required } from "./query.ts";
import { listFiles, readFile } from "./read.ts";
import { writeFile } from "./write.ts";

/** The older form of read, write and list (docs/spec/files.md). */
export async function callByOp(
  deps: MoveDeps,
  scope: Scope,
  { body, ...call }: { sessionId: string; body: LegacyFileCall; signal: AbortSignal },
): Promise<FileContent | FileWriteResult | FileEntries> {
  const { op, encoding } = body;
  if (op === "list") return await listFiles(deps, scope, { ...call, path: body.path ?? FILES_ROOT });
  const path = required("path", body.path);
  if (op === "read") return await readFile(deps, scope, { ...call, path, encoding: encoding ?? "text" });
  const file = { path, content: required("content", body.content), encoding };
  return await writeFile(deps, scope, { ...call, file });
}
