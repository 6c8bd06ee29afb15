/** Makes the client that verbs use, with the API key of the environment or of the local service. */
import path from "node:path";
import { hasCode } from "@vivarium/kit/unknown-error";
import { Client } from "@vivarium/sdk";
import { longFetch } from "@vivarium/sdk/long-fetch";
import { CliError } from "./cli-error.ts";
import type { CliConfig } from "./config.ts";
import { readUnprivilegedFile } from "./service/read-unprivileged-file.ts";

const LOCAL_HOSTS = ["127.0.0.1", "localhost", "[::1]"];

export function bootstrapKeyPath(dataDir: string): string {
  return path.join(dataDir, "control", "bootstrap.key");
}

export function isLocal(url: string): boolean {
  return LOCAL_HOSTS.includes(new URL(url).hostname);
}

/** A client with the API key of the environment, else with the bootstrap key of the local service. */
export async function connect(config: CliConfig): Promise<Client> {
  const apiKey = config.apiKey ?? (await localKey(config));
  return new Client({ url: config.url, apiKey, fetch: longFetch });
}

/** A client with the operator's key, of the environment or of the local service. */
export async function connectAsOperator(config: CliConfig): Promise<Client> {
  const file = path.join(config.dataDir, "control", "operator.key");
  const apiKey = config.operatorKey ?? (isLocal(config.url) ? await readKey(file) : undefined);
  if (apiKey === undefined)
    throw new CliError("this needs the operator's key", {
      hint: `Run viv as the user who runs the service (sudo viv …), or set VIV_OPERATOR_KEY to what ${file} contains there.`,
    });
  return new Client({ url: config.url, apiKey, fetch: longFetch });
}

/** A client for requests that need no key, such as the health check. */
export function connectWithoutKey(config: CliConfig): Client {
  return new Client({ url: config.url, retries: 0, fetch: longFetch });
}

/** The bootstrap key of the local service; undefined for another machine, which must not receive it. */
async function localKey(config: CliConfig): Promise<string | undefined> {
  if (!isLocal(config.url)) return undefined;
  return await readKey(bootstrapKeyPath(config.dataDir));
}

/** Undefined if the file is not there. */
async function readKey(file: string): Promise<string | undefined> {
  try {
    return (await readUnprivilegedFile(file)).text.trim();
  } catch (cause) {
    if (hasCode(cause, "ENOENT", "ENOTDIR")) return undefined;
    throw new CliError(`cannot read the key in ${file}`, {
      hint: "Run viv as the user who runs the service (sudo viv …), or set VIV_API_KEY. A link is not followed.",
      cause,
    });
  }
}
