/** Reads the settings of `viv` from the environment. */
import { homedir } from "node:os";
import path from "node:path";
import { messageOf } from "@vivarium/kit/unknown-error";
import { parseListen } from "./args/values.ts";
import { UsageError } from "./cli-error.ts";

export const DEFAULT_LISTEN = "127.0.0.1:7400";
const DEFAULT_DATA_DIR = "/var/lib/vivarium";
/** Credentials of `viv` itself, which the processes of the service do not get. */
const CREDENTIALS = ["VIV_API_KEY", "VIV_OPERATOR_KEY"];
/** The credential of the bucket in which the service keeps files, which control alone gets. */
const OF_BUCKET = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
/** Environment variables passed to the processes of the service, besides VIV_* (without `CREDENTIALS`). */
const PASSED_ON = ["PATH", "HOME", "LANG", "LC_ALL", "TZ", "NODE_OPTIONS", "NODE_EXTRA_CA_CERTS"];

/** Settings of `viv` from the environment, read once at the start; options of a verb override them. */
export interface CliConfig {
  url: string;
  /** host:port at which `viv up` serves. */
  listen: string;
  apiKey: string | undefined;
  dataDir: string;
  imagesDir: string | undefined;
  /** A PostgreSQL of the operator's own; without it `viv up` runs one. */
  databaseUrl: string | undefined;
  /** False with NO_COLOR or TERM=dumb. */
  wantsColour: boolean;
  /** False for a terminal without cursor control (TERM=dumb), which only gets lines. */
  canDraw: boolean;
  /** Program that opens a URL in the browser; undefined without a graphical display. */
  browser: "open" | "xdg-open" | undefined;
  /** Command of the human's editor: $VISUAL, $EDITOR or vi. */
  editor: string;
  /** `TERM` and `COLORTERM` of the human's terminal, for programs that draw on it from inside a session. */
  term: string | undefined;
  colorterm: string | undefined;
  /** Directory for state of this user, such as the host keys of sessions. */
  stateDir: string;
  /** Builds of set-up, as ./setup finds it. */
  cacheDir: string;
  /** Pid of the unit's main process, in a command that systemd runs beside it. */
  mainPid: number | undefined;
  /** The operator's key; without it that of the local service. */
  operatorKey: string | undefined;
  /** A variable of the environment by its name, for options that take a value from there. */
  variable: (name: string) => string | undefined;
  /** Environment for the processes of the service. */
  childEnv: Record<string, string>;
}

export function readConfig(env: NodeJS.ProcessEnv = process.env): CliConfig {
  const passedOn = Object.entries(env).filter(
    ([name]) => PASSED_ON.includes(name) || (isSetting(name, env) && !CREDENTIALS.includes(name)),
  );
  return {
    url: normalizeUrl(env.VIV_URL || `http://${DEFAULT_LISTEN}`, "VIV_URL"),
    listen: readListen(env.VIV_LISTEN || DEFAULT_LISTEN),
    apiKey: env.VIV_API_KEY || undefined,
    dataDir: path.resolve(env.VIV_DATA_DIR || DEFAULT_DATA_DIR),
    imagesDir: env.VIV_IMAGES_DIR ? path.resolve(env.VIV_IMAGES_DIR) : undefined,
    databaseUrl: env.DATABASE_URL || undefined,
    canDraw: env.TERM !== "dumb",
    browser: browserOf(env),
    editor: env.VISUAL || env.EDITOR || "vi",
    term: env.TERM || undefined,
    colorterm: env.COLORTERM || undefined,
    stateDir: path.join(
      env.XDG_STATE_HOME || path.join(env.HOME || homedir(), ".local", "state"),
      "vivarium",
    ),
    cacheDir:
      env.VIV_CACHE_DIR ||
      path.join(env.XDG_CACHE_HOME || path.join(env.HOME || homedir(), ".cache"), "vivarium"),
    mainPid: env.MAINPID ? Number(env.MAINPID) : undefined,
    wantsColour: !env.NO_COLOR && env.TERM !== "dumb",
    operatorKey: env.VIV_OPERATOR_KEY || undefined,
    variable: (name) => env[name],
    childEnv: Object.fromEntries(passedOn) as Record<string, string>,
  };
}

/** Whether a variable is a setting of the service. Without a bucket, the credential for one belongs to another program. */
export function isSetting(name: string, env: NodeJS.ProcessEnv): boolean {
  return name.startsWith("VIV_") || (OF_BUCKET.includes(name) && Boolean(env.VIV_OBJECTS));
}

function browserOf(env: NodeJS.ProcessEnv): CliConfig["browser"] {
  if (process.platform === "darwin") return "open";
  return env.DISPLAY || env.WAYLAND_DISPLAY ? "xdg-open" : undefined;
}

/** The configuration, overridden by the options of one verb. */
export function withOptions(
  config: CliConfig,
  options: { url?: string; listen?: string; dataDir?: string; imagesDir?: string },
): CliConfig {
  return {
    ...config,
    url: options.url === undefined ? config.url : normalizeUrl(options.url, "--url"),
    listen: options.listen ?? config.listen,
    dataDir: options.dataDir === undefined ? config.dataDir : path.resolve(options.dataDir),
    imagesDir: options.imagesDir === undefined ? config.imagesDir : path.resolve(options.imagesDir),
  };
}

function readListen(text: string): string {
  try {
    return parseListen(text);
  } catch (cause) {
    const expected = messageOf(cause);
    throw new UsageError(`VIV_LISTEN is "${text}". ${expected}`, undefined, cause);
  }
}

function normalizeUrl(text: string, source: string): string {
  const url = URL.parse(text);
  if (url === null || !["http:", "https:"].includes(url.protocol)) {
    throw new UsageError(`${source} is "${text}"; expected a URL such as http://${DEFAULT_LISTEN}`);
  }
  return url.href.replace(/\/+$/, "");
}
