/** The file of a unit's settings: its first text, and changes of single lines that leave the rest as it is. Pure. */
import path from "node:path";

/** Settings that the first text names, with their defaults and meanings; docs/operate/configure.md has all. */
const NAMED: readonly (readonly [name: string, usual: string, meaning: string])[] = [
  ["VIV_LISTEN", "127.0.0.1:7400", "address of the HTTP interface"],
  ["VIV_INGRESS_LISTEN", "127.0.0.1:7401", "address for visitors of previews"],
  ["VIV_NODE_DOMAIN", "localhost", "previews are at <port>-<session id>.<this>"],
  ["VIV_METRICS_LISTEN", "127.0.0.1:7402", "address of the metrics; unset: none"],
  ["DATABASE_URL", "postgres://user:password@host/name", "a PostgreSQL of your own; unset: the built-in one"],
  ["VIV_LOG_LEVEL", "info", "trace, debug, info, warn, error, fatal"],
  ["VIV_MAX_MACHINES", "128", "machines on this host at most, whatever its memory"],
  ["VIV_CONCURRENT_SESSIONS", "10", "sessions of an organisation that are creating or live at once"],
  ["VIV_WARM_MACHINES", "1", "machines kept ready for the next create, at least"],
  ["VIV_NEVER_RANGES", "", "more addresses that no session reaches"],
  [
    "VIV_SESSION_EGRESS_CAP_BYTES",
    "0",
    "what a session may send in a UTC day, unless its create says; 0: no cap",
  ],
];

export type Settings = Readonly<Record<string, string>>;

export function newSettings(unit: string, chosen: Settings): string {
  const lines = NAMED.flatMap(([name, usual, meaning]) => [
    `# ${meaning}`,
    name in chosen ? assignment(name, chosen[name] ?? "") : `#${name}=${usual}`,
    "",
  ]);
  const others = Object.entries(chosen).filter(([name]) => !NAMED.some(([known]) => known === name));
  return [
    `# Settings of ${unit}.service. A change counts after: systemctl restart ${unit}`,
    "# All settings and their meanings: docs/operate/configure.md. Later installs keep this file.",
    "",
    ...lines,
    ...others.flatMap(([name, value]) => [assignment(name, value), ""]),
  ].join("\n");
}

/**
 * The text with these values: in the last line that has the name, which is the one that systemd uses, else at the end.
 * All other lines stay as they are.
 */
export function withSettings(text: string, chosen: Settings): string {
  let changed = text.endsWith("\n") || text === "" ? text : `${text}\n`;
  for (const [name, value] of Object.entries(chosen)) {
    const line = assignment(name, value);
    const present = [...changed.matchAll(new RegExp(`^[ \\t]*${name}=(?:.*\\\\\n)*.*$`, "gm"))].at(-1);
    const place = present ?? new RegExp(`^#${name}=.*$`, "m").exec(changed);
    changed = place
      ? `${changed.slice(0, place.index)}${line}${changed.slice(place.index + place[0].length)}`
      : `${changed}${line}\n`;
  }
  return changed;
}

/** The values as systemd reads them from such a file, without its rarer forms. */
export function readSettings(text: string): Settings {
  const settings: Record<string, string> = {};
  // A backslash at the end of a line joins it with the next one.
  for (const line of text.replaceAll("\\\n", "").split("\n")) {
    const [, name, value = ""] = /^\s*([A-Za-z_]\w*)=(.*)$/.exec(line) ?? [];
    if (name !== undefined) settings[name] = unquote(value.trim());
  }
  return settings;
}

/** Settings whose values are paths, which may begin where the caller is. VIV_CA_BUNDLE also has words. */
const PATHS = [
  "VIV_IMAGES_DIR",
  "VIV_CA_BUNDLE",
  "VIV_CACHE_DIR",
  "VIV_KEK_FILE",
  "VIV_OBJECTS_CREDENTIALS_FILE",
  "VIV_CONNECTION_ROOTS",
  "VIV_NODE_SOCKET",
  "VIV_GATEWAY_SOCKET",
];
const WORDS = ["", "auto", "none"];

/** The settings with absolute paths: a unit starts in another directory. */
export function withAbsolutePaths(settings: Settings, cwd: string): Settings {
  const entries = Object.entries(settings).map(([name, value]) => {
    const isPath = PATHS.includes(name) && !WORDS.includes(value);
    return [name, isPath ? path.resolve(cwd, value) : value];
  });
  return Object.fromEntries(entries);
}

function unquote(value: string): string {
  const [, , inner] = /^(["'])(.*)\1$/.exec(value) ?? [];
  return inner === undefined ? value : inner.replaceAll(/\\(.)/g, "$1");
}

function assignment(name: string, value: string): string {
  const isPlain = /^[\w@:,./=+?&%-]*$/.test(value);
  return `${name}=${isPlain ? value : `"${value.replaceAll(/[\\"`$]/g, "\\$&")}"`}`;
}
