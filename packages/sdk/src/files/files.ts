/** `session.files`, the files of a session. */
import type {
  FileBatchResult,
  FileContent,
  FileEntries,
  FileUploaded,
  FileWriteResult,
  FoundLines,
  FoundPaths,
  Mkdir,
  Rename,
} from "@vivarium/contract/api";
import { decodeBase64, encodeBase64 } from "../base64.ts";
import { type CallOptions, getJson, postJson, sendJson, sessionPath, type Transport } from "../transport.ts";
import { readStream, saveStream } from "./download.ts";
import { openUpload, type UploadSource } from "./upload-source.ts";

/** Options of a search for paths. */
export interface FindOptions extends CallOptions {
  /** Directory to search. Default: /workspace. */
  path?: string;
  /** Limit of paths (find) or of files with matches (grep). Default: 1,000; at most 10,000. */
  maxResults?: number;
}

/** Options of a search for lines. */
export interface GrepOptions extends FindOptions {
  /** Glob that the base names of searched files must match. */
  filePattern?: string;
  /** Whether upper and lower case differ. Default: false. */
  caseSensitive?: boolean;
  /** Lines before and after each match, 0 to 10. Default: 0. */
  contextLines?: number;
  /** Base names of directories to skip, at any depth. */
  excludeDirs?: readonly string[];
}

/** One file of a batch. */
export interface FileToWrite {
  path: string;
  content: string | Uint8Array;
}

/**
 * Files of one session (docs/spec/files.md). Reached as `client.session(id).files`.
 *
 * A path is absolute or relative to /workspace, and must lie there. Every call wakes a paused session. Refusals are
 * VivariumErrors: `not_found` for a missing file, `validation` for a wrong path or kind of file, `conflict` for a
 * directory that is not empty or a full disk, `payload_too_large` over a cap.
 */
export class Files {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, sessionId: string) {
    this.#transport = transport;
    this.#path = sessionPath(sessionId, "/files");
  }

  /**
   * The text of a file of at most 4 MiB; bytes that are not UTF-8 become U+FFFD.
   *
   * @example
   * const text = await session.files.read("notes.txt");
   */
  async read(path: string, options: CallOptions = {}): Promise<string> {
    return (await this.#get<FileContent>({ op: "read", path }, options)).content;
  }

  /**
   * The bytes of a file of at most 4 MiB. Larger ones: `readStream`.
   *
   * @example
   * const png = await session.files.readBytes("plot.png");
   */
  async readBytes(path: string, options: CallOptions = {}): Promise<Uint8Array> {
    const { content } = await this.#get<FileContent>({ op: "read", path, encoding: "base64" }, options);
    return decodeBase64(content);
  }

  /**
   * The bytes of a file of any size, read only as fast as the loop takes them. Throws `stream_interrupted` when the
   * transfer breaks. Leaving the loop, or aborting, ends the transfer.
   *
   * @example
   * for await (const chunk of session.files.readStream("video.mp4")) out.write(chunk);
   */
  readStream(path: string, options: CallOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    return readStream(this.#transport, `${this.#path}/stream`, { path }, options);
  }

  /**
   * Saves a file of any size as a local file, whole or not at all; an old file is replaced (in Node). Resolves to its
   * size in bytes and its SHA-256 in hex.
   *
   * @example
   * const { bytes, sha256 } = await session.files.download("model.bin", "./model.bin");
   */
  download(
    path: string,
    file: string,
    options: CallOptions = {},
  ): Promise<{ bytes: number; sha256: string }> {
    return saveStream(this.readStream(path, options), file);
  }

  /**
   * Writes a file of at most 8 MiB, whole or not at all. Missing parents are created.
   *
   * @example
   * await session.files.write("src/main.py", "print(6 * 7)\n");
   */
  write(path: string, content: string | Uint8Array, options: CallOptions = {}): Promise<FileWriteResult> {
    return this.#put("", { path, ...contentOf(content) }, options);
  }

  /**
   * Writes up to 64 files, 8 MiB in all. Each file has its own result: `ok`, or an `error`.
   *
   * @example
   * const { results } = await session.files.writeBatch([{ path: "a.txt", content: "a" }]);
   */
  writeBatch(files: readonly FileToWrite[], options: CallOptions = {}): Promise<FileBatchResult> {
    const body = { files: files.map(({ path, content }) => ({ path, ...contentOf(content) })) };
    return this.#put("/batch", body, options);
  }

  /**
   * Writes a file of any size, whole or not at all, reading the source only as fast as the guest takes it. Resolves to
   * `bytes` and `sha256` of the written file. When the connection breaks, the upload is repeated if the source can be
   * read again, else it rejects with `connection_failed`. If the source fails, it rejects with the source's error.
   *
   * @example
   * await session.files.upload("data.csv", { file: "./data.csv" });
   * await session.files.upload("log.gz", createReadStream("app.log").pipe(createGzip()));
   */
  async upload(path: string, source: UploadSource, options: CallOptions = {}): Promise<FileUploaded> {
    const raw = await openUpload(source);
    try {
      return await sendJson<FileUploaded>(this.#transport, {
        method: "PUT",
        path: `${this.#path}/stream`,
        query: { path },
        raw,
        repeatable: true,
        ...options,
      });
    } catch (error) {
      throw raw.failure === undefined ? error : raw.failure.cause;
    } finally {
      raw.close();
    }
  }

  /**
   * Names in a directory, in byte order; names of directories end in `/`. `truncated` when there are more than 100,000.
   *
   * @example
   * const { entries } = await session.files.list("src");
   */
  list(path?: string, options: CallOptions = {}): Promise<FileEntries> {
    return this.#get({ op: "list", path }, options);
  }

  /**
   * Absolute paths of the files and links that match a glob: `*`, `?`, `[…]`, and `**` as a whole segment for any
   * number of directories. Visits 10,000 files and links in directories that can match; `truncated` beyond a limit.
   *
   * @example
   * const { paths } = await session.files.find("src/**", { maxResults: 100 });
   */
  find(pattern: string, options: FindOptions = {}): Promise<FoundPaths> {
    const { path, maxResults: max_results } = options;
    return this.#get({ op: "find", pattern, path, max_results }, options);
  }

  /**
   * Lines that match a regular expression in RE2 syntax, in 10,000 files and 256 MiB; `truncated` beyond a limit.
   *
   * @example
   * const { matches } = await session.files.grep("TODO", { filePattern: "*.ts", contextLines: 2 });
   */
  grep(pattern: string, options: GrepOptions = {}): Promise<FoundLines> {
    const query = {
      op: "grep",
      pattern,
      path: options.path,
      max_results: options.maxResults,
      file_pattern: options.filePattern,
      case_sensitive: options.caseSensitive,
      context_lines: options.contextLines,
      exclude_dirs: options.excludeDirs?.join(","),
    };
    return this.#get(query, options);
  }

  /**
   * Deletes a file, a link or an empty directory; with `recursive` any directory.
   *
   * @example
   * await session.files.delete("build", { recursive: true });
   */
  async delete(path: string, options: CallOptions & { recursive?: boolean } = {}): Promise<void> {
    const { recursive, signal } = options;
    await sendJson(this.#transport, {
      method: "DELETE",
      path: this.#path,
      query: { path, recursive },
      // A repeated request would report `not_found` although the first has deleted the file.
      repeatable: false,
      signal,
    });
  }

  /**
   * Makes a directory and its parents. Does nothing if the directory exists.
   *
   * @example
   * await session.files.mkdir("src/lib");
   */
  async mkdir(path: string, options: CallOptions = {}): Promise<void> {
    await this.#post("mkdir", { path } satisfies Mkdir, true, options);
  }

  /**
   * Renames a file or a directory. Makes the parents of `destPath`, and replaces a file that has this path.
   *
   * @example
   * await session.files.rename("draft.md", "final/report.md");
   */
  async rename(path: string, destPath: string, options: CallOptions = {}): Promise<void> {
    await this.#post("rename", { path, dest_path: destPath } satisfies Rename, false, options);
  }

  #get<T>(query: Record<string, string | number | boolean | undefined>, options: CallOptions): Promise<T> {
    return getJson(this.#transport, this.#path, options, query);
  }

  #put<T>(below: "" | "/batch", body: object, { signal }: CallOptions): Promise<T> {
    const path = `${this.#path}${below}`;
    return sendJson(this.#transport, { method: "PUT", path, body, repeatable: true, signal });
  }

  #post(verb: "mkdir" | "rename", body: object, repeatable: boolean, options: CallOptions): Promise<unknown> {
    return postJson(this.#transport, `${this.#path}/${verb}`, body, { ...options, repeatable });
  }
}

function contentOf(content: string | Uint8Array): { content: string; encoding?: "base64" } {
  return typeof content === "string" ? { content } : { content: encodeBase64(content), encoding: "base64" };
}
