/** Files of a session (docs/spec/files.md). */
import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { named, text } from "./wire-types.ts";

/** Escape of one byte of a name that is not UTF-8, or of a backslash (guest/files.ts). */
const ESCAPED_BYTE = /\\x(?:[89a-f][0-9a-f]|5c)/g;
/** Length of the unescaped name in the guest, in bytes. */
const bytesOf = (name: string) => new TextEncoder().encode(name.replaceAll(ESCAPED_BYTE, "?")).length;

/** A path as a caller gives it: absolute, or relative to /workspace. The guest checks the file behind it. */
export const FilePath = text()
  .min(1, "must not be empty")
  .refine((path) => bytesOf(path) <= LIMITS.pathBytes, `must be at most ${LIMITS.pathBytes} bytes long`)
  .refine(
    (path) => path.split("/").every((part) => bytesOf(part) <= LIMITS.pathComponentBytes),
    `each part must be at most ${LIMITS.pathComponentBytes} bytes long`,
  )
  .refine(isInWorkspace, "path must be under /workspace");

/** Whether the text of the path stays below /workspace. Symbolic links are resolved in the guest. */
export function isInWorkspace(path: string): boolean {
  const parts: string[] = [];
  for (const part of (path.startsWith("/") ? path : `/workspace/${path}`).split("/")) {
    if (part === "..") parts.pop();
    else if (part !== "" && part !== ".") parts.push(part);
  }
  return parts[0] === "workspace";
}

export const FILE_ENCODINGS = ["text", "base64"] as const;
export type FileEncoding = (typeof FILE_ENCODINGS)[number];
const encoding = z.enum(FILE_ENCODINGS, "must be text or base64");
/** File contents may contain NUL. */
const content = z.string().refine((value) => value.isWellFormed(), "must be valid Unicode");

/** Body of `PUT …/files`: at most LIMITS.fileWriteBytes once decoded. */
export const FileWrite = named("FileWrite", { path: FilePath, content, encoding: encoding.nullish() });
export type FileWrite = z.infer<typeof FileWrite>;

export const FileWriteResult = named("FileWriteResult", { path: z.string(), bytes: z.int() });
export type FileWriteResult = z.infer<typeof FileWriteResult>;

export const FileContent = named("FileContent", {
  content: z.string(),
  encoding: z.literal("base64").optional(),
});
export type FileContent = z.infer<typeof FileContent>;

export const FileEntries = named("FileEntries", {
  entries: z.array(z.string()),
  truncated: z.literal(true).optional(),
});
export type FileEntries = z.infer<typeof FileEntries>;

export const FoundPaths = named("FoundPaths", {
  paths: z.array(z.string()),
  truncated: z.boolean(),
  path: z.string(),
  duration_ms: z.int(),
});
export type FoundPaths = z.infer<typeof FoundPaths>;

export const FoundLine = z.object({
  path: z.string(),
  line_number: z.int(),
  line: z.string(),
  before: z.array(z.string()).optional(),
  after: z.array(z.string()).optional(),
});
export type FoundLine = z.infer<typeof FoundLine>;

export const FoundLines = named("FoundLines", {
  matches: z.array(FoundLine),
  files_searched: z.int(),
  truncated: z.boolean(),
  path: z.string(),
  duration_ms: z.int(),
});
export type FoundLines = z.infer<typeof FoundLines>;

export const FileDeleted = named("FileDeleted", { ok: z.literal(true), path: z.string() });
export type FileDeleted = z.infer<typeof FileDeleted>;

/** Body and answer of `POST …/files/mkdir`. */
export const Mkdir = named("Mkdir", { path: FilePath });
export type Mkdir = z.input<typeof Mkdir>;

/** Body and answer of `POST …/files/rename`. */
export const Rename = named("Rename", { path: FilePath, dest_path: FilePath });
export type Rename = z.input<typeof Rename>;

/** Answer of `PUT …/files/stream`. */
export const FileUploaded = named("FileUploaded", {
  path: z.string(),
  bytes: z.int(),
  sha256: z.string(),
  duration_ms: z.int(),
});
export type FileUploaded = z.infer<typeof FileUploaded>;

/** Body of `PUT …/files/batch`. Items are checked one by one, because a wrong path fails only its own item. */
export const FileBatch = named("FileBatch", {
  files: z
    .array(z.object({ path: z.string(), content: z.string(), encoding: encoding.nullish() }))
    .max(LIMITS.batchFiles, `must hold at most ${LIMITS.batchFiles} files`),
});

export const FileBatchResult = named("FileBatchResult", {
  results: z.array(z.object({ path: z.string(), ok: z.boolean(), error: z.string().optional() })),
  duration_ms: z.int(),
});
export type FileBatchResult = z.infer<typeof FileBatchResult>;

/** Body of `POST …/files`, the older form of read, write and list. For `list` a missing `path` is /workspace. */
export const LegacyFileCall = named("LegacyFileCall", {
  op: z.enum(["read", "write", "list"]),
  path: FilePath.nullish(),
  content: content.nullish(),
  encoding: encoding.nullish(),
});
export type LegacyFileCall = z.input<typeof LegacyFileCall>;
