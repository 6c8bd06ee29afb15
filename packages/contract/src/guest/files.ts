/**
 * Files of the session, below /workspace, with the rights of the guest user; see docs/spec/files.md.
 *
 *   GET    /v1/files/read?path=[&max_bytes=]     → 200 raw bytes with content-length: the content as of the moment it
 *                          [&plain=true]           was opened; `too_large` over max_bytes. A file that shrinks meanwhile
 *                                                  breaks the stream off. `plain`: no name of the path may be a link
 *   GET    /v1/files/list?path=                  → 200 frames: a list of `entries`, then FileList's rest
 *   GET    /v1/files/find?path=&pattern=&max_results=→ 200 frames: a list of `paths`, then FindResult's rest
 *   GET    /v1/files/grep?path=&pattern=&max_results=[&file_pattern=][&case_sensitive=true]
 *                          [&context_lines=][&exclude_dirs=a,b]      → 200 frames: a list of `matches`, then GrepResult's rest
 *   GET    /v1/files/match?pattern=[&max_results=]→ 200 frames: a list of `files`, then MatchResult's rest. Regular files
 *                                                  of the whole workspace, without links, by paths below it
 *   PUT    /v1/files/write?path=                 → 200 FileWritten: raw body → temporary file beside the target → fsync →
 *                                                  rename. Parents made; a body that breaks off leaves nothing behind.
 *                                                  List, find and grep leave such files out: `.vivarium-` and 16 of 0-9a-f
 *   DELETE /v1/files?path=[&recursive=true]      → 200 {}
 *   POST   /v1/files/mkdir   {path}              → 200 {}
 *   POST   /v1/files/rename  {path, dest_path}   → 200 {}
 *
 * Lists are lists.ts. A refusal's message begins with the path it is about, as it was given, or with `pattern: ` or
 * `file_pattern: `.
 *
 * Paths and names are UTF-8 text. A byte that is not UTF-8 is written `\xHH` (lower-case hex, 80 to ff), and a
 * backslash that would read as the start of such a piece is written `\x5c`; the same is understood in requests, so
 * that every listed file can be read, renamed and deleted. Patterns of find and grep match the bytes themselves.
 */
import { z } from "zod";

const count = z.int().min(0).max(Number.MAX_SAFE_INTEGER);
const name = z.string().max(4 * 4096);

export const FileList = z.object({ entries: z.array(name).max(100_000), truncated: z.boolean() });
export type FileList = z.infer<typeof FileList>;

export const FindResult = z.object({
  paths: z.array(name).max(10_000),
  truncated: z.boolean(),
  duration_us: count,
});
export type FindResult = z.infer<typeof FindResult>;

/** A file that a glob matches. `path` is relative to /workspace. */
export const MatchedFile = z.object({ path: name.min(1), bytes: count });
export type MatchedFile = z.infer<typeof MatchedFile>;
export const MatchResult = z.object({
  files: z.array(MatchedFile).max(10_001),
  truncated: z.boolean(),
  duration_us: count,
});

const line = z.string().max(64 * 1024);
export const GrepMatch = z.object({
  path: name,
  line_number: count,
  line,
  before: z.array(line).max(10).optional(),
  after: z.array(line).max(10).optional(),
});
export const GrepResult = z.object({
  /** More than 100,000 matches do not fit into LIMITS.grepAnswerBytes. */
  matches: z.array(GrepMatch).max(100_000),
  files_searched: count,
  truncated: z.boolean(),
  duration_us: count,
});
export type GrepResult = z.infer<typeof GrepResult>;

export const FileWritten = z.object({ bytes: count, duration_us: count });
