/** The operator's certificate: two files that are replaced under us whenever their owner renews them. */
import { type FSWatcher, readFileSync, watch } from "node:fs";
import { dirname } from "node:path";
import { createSecureContext } from "node:tls";

/** Renewing writes two files, and often moves links: only the last of many signs counts. */
const REST_MS = 500;

export interface CertificateFiles {
  certFile: string;
  keyFile: string;
}

export interface Pair {
  cert: Buffer;
  key: Buffer;
}

/** Throws where the files are missing or do not belong together. */
export function readPair({ certFile, keyFile }: CertificateFiles): Pair {
  const pair = { cert: readFileSync(certFile), key: readFileSync(keyFile) };
  createSecureContext(pair);
  return pair;
}

/** Folders, because a file that is replaced is not the file that was watched. Returns the end of the watch. */
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
