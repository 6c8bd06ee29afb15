/** Files of a session (docs/spec/files.md). */
import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { text } from "./wire-types.ts";

/** One byte of a name that is not UTF-8, as guest/files.ts writes it. */
const ESCAPED_BYTE = /\\x(?:[89a-f][0-9a-f]|5c)/g;
/** Length of the name in the guest, in bytes. */
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

/** Checks the text only. Symbolic links are resolved in the guest. */
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
export const FileWrite = z
  .object({ path: FilePath, content, encoding: encoding.nullish() })
  .meta({ id: "FileWrite" });
export type FileWrite = z.input<typeof FileWrite>;

export const FileWriteResult = z.object({ path: z.string(), bytes: z.int() }).meta({ id: "FileWriteResult" });
export type FileWriteResult = z.infer<typeof FileWriteResult>;

export const FileContent = z
  .object({ content: z.string(), encoding: z.literal("base64").optional() })
  .meta({ id: "FileContent" });
export type FileContent = z.infer<typeof FileContent>;

export const FileEntries = z
  .object({ entries: z.array(z.string()), truncated: z.literal(true).optional() })
  .meta({ id: "FileEntries" });
export type FileEntries = z.infer<typeof FileEntries>;

export const FoundPaths = z
  .object({ paths: z.array(z.string()), truncated: z.boolean(), path: z.string(), duration_ms: z.int() })
  .meta({ id: "FoundPaths" });
export type FoundPaths = z.infer<typeof FoundPaths>;

export const FoundLine = z.object({
  path: z.string(),
  line_number: z.int(),
  line: z.string(),
  before: z.array(z.string()).optional(),
  after: z.array(z.string()).optional(),
});
export type FoundLine = z.infer<typeof FoundLine>;

export const FoundLines = z
  .object({
    matches: z.array(FoundLine),
    files_searched: z.int(),
    truncated: z.boolean(),
    path: z.string(),
    duration_ms: z.int(),
  })
  .meta({ id: "FoundLines" });
export type FoundLines = z.infer<typeof FoundLines>;

export const FileDeleted = z.object({ ok: z.literal(true), path: z.string() }).meta({ id: "FileDeleted" });
export type FileDeleted = z.infer<typeof FileDeleted>;

/** Body and answer of `POST …/files/mkdir`. */
export const Mkdir = z.object({ path: FilePath }).meta({ id: "Mkdir" });
export type Mkdir = z.input<typeof Mkdir>;

/** Body and answer of `POST …/files/rename`. */
export const Rename = z.object({ path: FilePath, dest_path: FilePath }).meta({ id: "Rename" });
export type Rename = z.input<typeof Rename>;

/** Answer of `PUT …/files/stream`. */
export const FileUploaded = z
  .object({ path: z.string(), bytes: z.int(), sha256: z.string(), duration_ms: z.int() })
  .meta({ id: "FileUploaded" });
export type FileUploaded = z.infer<typeof FileUploaded>;

/** Body of `PUT …/files/batch`. Items are checked one by one, because a wrong path fails only its own item. */
export const FileBatch = z
  .object({
    files: z
      .array(z.object({ path: z.string(), content: z.string(), encoding: encoding.nullish() }))
      .max(LIMITS.batchFiles, `must hold at most ${LIMITS.batchFiles} files`),
  })
  .meta({ id: "FileBatch" });
export type FileBatch = z.input<typeof FileBatch>;

export const FileBatchResult = z
  .object({
    results: z.array(z.object({ path: z.string(), ok: z.boolean(), error: z.string().optional() })),
    duration_ms: z.int(),
  })
  .meta({ id: "FileBatchResult" });
export type FileBatchResult = z.infer<typeof FileBatchResult>;

/** Body of `POST …/files`, an older form of the same. A missing `path` is /workspace where it is in the query. */
export const LegacyFileCall = z
  .object({
    op: z.enum(["read", "write", "list"]),
    path: FilePath.nullish(),
    content: content.nullish(),
    encoding: encoding.nullish(),
  })
  .meta({ id: "LegacyFileCall" });
export type LegacyFileCall = z.input<typeof LegacyFileCall>;
