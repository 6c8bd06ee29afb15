/** How the system's SSH client reaches a session: through `viv tunnel`, as the user of the session. */
import path from "node:path";
import { type CliConfig, DEFAULT_LISTEN } from "../config.ts";

/** The user of every session. */
const USER = "sandbox";
/** Token for the host name in a proxy command, as it was typed. */
export const TYPED_HOST = "%n";

/** This very program, from anywhere. */
const OWN_COMMAND = [process.execPath, path.join(import.meta.dirname, "..", "main.ts")];

export function hostAlias(sessionId: string): string {
  return `viv-${sessionId}`;
}

/** The session behind `viv-ID`, `ID.viv` or the id itself. */
export function sessionOfHost(host: string): string {
  return host.replace(/^viv-/, "").replace(/\.viv$/, "");
}

/**
 * Options as ssh_config(5) has them, name and value. Access is controlled by the API key of the tunnel. The host key is
 * stored under the session's own name at the first visit, and a changed one is refused.
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

/** For the shell that runs the proxy command; `%` begins a token of ssh. */
function quoteWord(word: string): string {
  const escaped = word.replaceAll("%", "%%");
  return /^[\w@%+=:,./-]+$/.test(escaped) ? escaped : `'${escaped.replaceAll("'", "'\\''")}'`;
}

/** For ssh itself, which splits lists of files at blanks and treats quotes specially. */
function quoteValue(value: string): string {
  const escaped = value.replaceAll("%", "%%");
  return /[\s'"]/.test(escaped) ? `"${escaped.replaceAll(/["\\]/g, "\\$&")}"` : escaped;
}
