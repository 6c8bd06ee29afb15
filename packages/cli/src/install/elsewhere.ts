/**
 * Files that settings put outside of the data directory. An uninstall leaves and names them, also with --data: another
 * service of this host or of others may use the same place.
 */
import { existsSync } from "node:fs";
import path from "node:path";
import { isInside } from "./directories.ts";
import type { Settings } from "./settings-file.ts";

export interface Elsewhere {
  what: string;
  place: string;
  setting: string;
}

/** Settings with the path of something that the service or set-up writes. */
const PATHS: readonly (readonly [setting: string, what: string])[] = [
  ["VIV_OBJECTS_DIR", "files of artifacts"],
  ["VIV_IMAGES_DIR", "images"],
  ["VIV_KEK_FILE", "keys that seal secrets"],
  ["VIV_NODE_SOCKET", "the node's socket"],
  ["VIV_GATEWAY_SOCKET", "the gateway's socket"],
];
/** Files that the gateway writes only if it asks an authority for a certificate itself. */
const OF_ACME: typeof PATHS = [
  ["VIV_INGRESS_TLS_CERT", "certificate of previews"],
  ["VIV_INGRESS_TLS_KEY", "key of the certificate of previews"],
  ["VIV_INGRESS_ACME_ACCOUNT_KEY", "key of the account for certificates"],
];

/** Where the objects of artifacts are in a directory; undefined: in a bucket. */
export function objectsDirOf(dataDir: string, settings: Settings): string | undefined {
  if (settings.VIV_OBJECTS) return undefined;
  return path.resolve(settings.VIV_OBJECTS_DIR || path.join(dataDir, "objects"));
}

export function keptElsewhere(dataDir: string, settings: Settings): Elsewhere[] {
  const named = settings.VIV_INGRESS_ACME_DIRECTORY ? [...PATHS, ...OF_ACME] : PATHS;
  const files = named.flatMap(([setting, what]) => {
    const place = settings[setting];
    if (!place || isInside(place, dataDir) || !existsSync(place)) return [];
    return [{ what, place, setting }];
  });
  const { VIV_OBJECTS: bucket } = settings;
  return bucket ? [...files, { what: "files of artifacts", place: bucket, setting: "VIV_OBJECTS" }] : files;
}
