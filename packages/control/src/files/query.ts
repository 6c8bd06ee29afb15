/** Queries of the file endpoints (docs/spec/files.md). */
import { FILE_ENCODINGS, type FileEncoding, FilePath, LIMITS } from "@vivarium/contract/api";
import { z } from "zod";
import { queryFlag, queryText } from "../http/query.ts";
import { invalidField } from "../http/validation.ts";

/** The default directory of list, find and grep. */
export const FILES_ROOT = "/workspace";

const pattern = queryText().min(1, "must not be empty");

/** Parses a whole number of at least `min`. One above `max` counts as `max`. */
function wholeNumberText(min: number, max: number) {
  const words = `must be a whole number of at least ${min}`;
  return queryText()
    .regex(/^[0-9]+$/, words)
    .transform(Number)
    .refine((value) => value >= min, words)
    .transform((value) => Math.min(value, max));
}

export const FilesQuery = z.object({
  op: z.enum(["read", "list", "find", "grep"]).optional(),
  path: FilePath.optional().meta({ description: "required to read; /workspace otherwise" }),
  encoding: z.enum(FILE_ENCODINGS).optional().meta({ description: "to read only" }),
  pattern: pattern.optional().meta({ description: "a glob to find, a regular expression (RE2) to grep" }),
  max_results: wholeNumberText(1, LIMITS.searchResultsMax).optional(),
  file_pattern: pattern.optional().meta({ description: "a glob that base names must match" }),
  case_sensitive: queryFlag.optional(),
  context_lines: wholeNumberText(0, LIMITS.grepContextLines).optional(),
  exclude_dirs: queryText().optional().meta({ description: "names of directories, separated by commas" }),
});
type FilesQuery = z.output<typeof FilesQuery>;

export const PathQuery = z.object({ path: FilePath });
export const DeleteQuery = z.object({ path: FilePath, recursive: queryFlag.optional() });

/** One call for a file or directory of a session. */
export interface FileCall {
  sessionId: string;
  path: string;
  signal: AbortSignal;
}

/** The query of a search, as the agent expects it. */
export interface SearchQuery {
  path: string;
  pattern: string;
  max_results: number;
  file_pattern?: string;
  case_sensitive?: true;
  context_lines?: number;
  exclude_dirs?: string;
}
type FilesRead =
  | { op: "read"; path: string; encoding: FileEncoding }
  | { op: "list"; path: string }
  | { op: "find" | "grep"; query: SearchQuery };

/** Checks the fields that `op` needs, and fills in the defaults. */
export function filesRead({ op = "read", path, encoding, ...search }: FilesQuery): FilesRead {
  if (op === "read") return { op, path: required("path", path), encoding: encoding ?? "text" };
  if (encoding !== undefined) throw invalidField("encoding", "is accepted with op=read only", encoding);
  if (op === "list") return { op, path: path ?? FILES_ROOT };
  const query = {
    path: path ?? FILES_ROOT,
    pattern: required("pattern", search.pattern),
    max_results: search.max_results ?? LIMITS.searchResultsDefault,
  };
  if (op === "find") return { op, query };
  return {
    op,
    query: {
      ...query,
      file_pattern: search.file_pattern,
      case_sensitive: search.case_sensitive || undefined,
      context_lines: search.context_lines || undefined,
      exclude_dirs: search.exclude_dirs,
    },
  };
}

export function required<T>(field: string, value: T | null | undefined): T {
  if (value == null) throw invalidField(field, "must be a string, got nothing");
  return value;
}
