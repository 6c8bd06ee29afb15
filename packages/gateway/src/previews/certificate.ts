/** The operator's certificate: two files that their owner may replace at any time. */
import { type FSWatcher, readFileSync, watch } from "node:fs";
import { dirname } from "node:path";
import { createSecureContext } from "node:tls";

/** A renewal writes two files and often moves links. Debounced: only the last event counts. */
const REST_MS = 500;

export interface CertificateFiles {
  certFile: string;
  keyFile: string;
}

export interface Pair {
  cert: Buffer;
  key: Buffer;
}

/** Throws when the files are missing or do not belong together. */
export function readPair({ certFile, keyFile }: CertificateFiles): Pair {
  const pair = { cert: readFileSync(certFile), key: readFileSync(keyFile) };
  createSecureContext(pair);
  return pair;
}

/** Undefined for files that are missing or cannot be used. */
export function findPair(files: CertificateFiles): Pair | undefined {
  try {
    return readPair(files);
  } catch {
    return undefined;
  }
}

/** Watches folders, because a replaced file is not the watched one. Returns the function that ends the watch. */
export function watchPair({ certFile, keyFile }: CertificateFiles, onChange: () => void): () => void {
  let timer: NodeJS.Timeout | undefined;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(onChange, REST_MS).unref();
  };
  const watchers = [...new Set([dirname(certFile), dirname(keyFile)])].map(
    (folder): FSWatcher => watch(folder, { persistent: false }, later).on("error", later),
  );
  return () => {
    clearTimeout(timer);
    for (const watcher of watchers) watcher.close();
  };
}
