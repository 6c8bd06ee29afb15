/** Places besides its data directory that a service uses, for the unit to wait for the file systems that they are on. */
import { realpathSync } from "node:fs";
import path from "node:path";
import type { Settings } from "./settings-file.ts";

/** Settings that name a directory or a file. systemd follows no links, so each place is also there without them. */
const NAMED_IN = ["VIV_IMAGES_DIR", "VIV_OBJECTS_DIR", "VIV_KEK_FILE", "VIV_OBJECTS_CREDENTIALS_FILE"];

export function placesIn(dataDir: string, settings: Settings): string[] {
  const named = NAMED_IN.map((name) => settings[name] ?? "").filter((value) => path.isAbsolute(value));
  const places = [dataDir, path.join(dataDir, "pool"), ...named];
  return [...new Set([...named, ...places.map(withoutLinks)])].filter(
    (place) => !places.slice(0, 2).includes(place),
  );
}

function withoutLinks(place: string): string {
  try {
    return realpathSync(place);
  } catch {
    return place;
  }
}
