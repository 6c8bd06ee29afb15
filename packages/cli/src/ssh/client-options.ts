/** Options with which the system's SSH client reaches a session, through `viv tunnel`. */
import path from "node:path";
import { type CliConfig, DEFAULT_LISTEN } from "../config.ts";

/** Guest user of every session. */
const USER = "sandbox";
/** Token of ssh_config(5) for the host name as it was typed. */
export const TYPED_HOST = "%n";

/** Command that runs this `viv` from any directory. */
const OWN_COMMAND = [process.execPath, path.join(import.meta.dirname, "..", "main.ts")];

export function hostAlias(sessionId: string): string {
  return `viv-${sessionId}`;
}

/** The session behind `viv-ID`, `ID.viv` or the id itself. */
export function sessionOfHost(host: string): string {
  return host.replace(/^viv-/, "").replace(/\.viv$/, "");
}

/**
 * Options of ssh_config(5), by name and value. Access is controlled by the API key of the tunnel. The host key is
 * stored at the first connect, under the session's own name, and a changed key is refused.
 */
export function clientOptions(
  config: Pick<CliConfig, "url" | "dataDir" | "stateDir">,
  host: string,
): [name: string, value: string][] {
  const own = [...OWN_COMMAND, "tunnel", ...connectionArguments(config)].map(quoteWord).join(" ");
  const alias: [string, string][] = host === TYPED_HOST ? [] : [["HostKeyAlias", host]];
  return [
    ["ProxyCommand", `${own} ${host === TYPED_HOST ? host : quoteWord(sessionOfHost(host))}`],
    ["User", USER],
    ...alias,
    ["UserKnownHostsFile", quoteValue(path.join(config.stateDir, "known_hosts"))],
    ["StrictHostKeyChecking", "accept-new"],
    ["HashKnownHosts", "no"],
    ["UpdateHostKeys", "no"],
    ["LogLevel", "ERROR"],
  ];
}

function connectionArguments({ url, dataDir }: Pick<CliConfig, "url" | "dataDir">): string[] {
  const isDefault = url === `http://${DEFAULT_LISTEN}`;
  return [...(isDefault ? [] : ["--url", url]), "--data-dir", dataDir];
}

/** Quotes a word for the shell that runs the proxy command; `%` would begin a token of ssh. */
function quoteWord(word: string): string {
  const escaped = word.replaceAll("%", "%%");
  return /^[\w@%+=:,./-]+$/.test(escaped) ? escaped : `'${escaped.replaceAll("'", "'\\''")}'`;
}

/** Quotes a value for ssh, which splits lists of files at blanks. */
function quoteValue(value: string): string {
  const escaped = value.replaceAll("%", "%%");
  return /[\s'"]/.test(escaped) ? `"${escaped.replaceAll(/["\\]/g, "\\$&")}"` : escaped;
}
