/** Reads and watches the files of the previews' certificate and key, which may be replaced at any time. */
import { type FSWatcher, readFileSync, watch } from "node:fs";
import { dirname } from "node:path";
import { createSecureContext } from "node:tls";

/** Debounce of changes: a renewal writes two files, and often moves links. */
const DEBOUNCE_MS = 500;

export interface CertificateFiles {
  certFile: string;
  keyFile: string;
}

export interface Pair {
  cert: Buffer;
  key: Buffer;
}

/** Throws when a file is missing, or certificate and key do not belong together. */
export function readPair({ certFile, keyFile }: CertificateFiles): Pair {
  const pair = { cert: readFileSync(certFile), key: readFileSync(keyFile) };
  createSecureContext(pair);
  return pair;
}

/** Returns undefined for files that are missing or cannot be used. */
export function findPair(files: CertificateFiles): Pair | undefined {
  try {
    return readPair(files);
  } catch {
    return undefined;
  }
}

/** Watches the folders: a watch on a file ends when the file is replaced. Returns the function that ends the watch. */
export function watchPair({ certFile, keyFile }: CertificateFiles, onChange: () => void): () => void {
  let timer: NodeJS.Timeout | undefined;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(onChange, DEBOUNCE_MS).unref();
  };
  const watchers = [...new Set([dirname(certFile), dirname(keyFile)])].map(
    (folder): FSWatcher => watch(folder, { persistent: false }, later).on("error", later),
  );
  return () => {
    clearTimeout(timer);
    for (const watcher of watchers) watcher.close();
  };
}
