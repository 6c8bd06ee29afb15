import { VivariumError } from "@vivarium/sdk";
import type { CliConfig } from "../config.ts";
import { connectWithoutKey, isLocal } from "../connect.ts";
import type { Terminal } from "../terminal.ts";
import { startInBackground } from "./start-in-background.ts";

/** Starts the service in the background when nothing listens at a local URL. */
export async function ensureService(deps: { config: CliConfig; terminal: Terminal }): Promise<void> {
  const { config, terminal } = deps;
  if (!isLocal(config.url)) return;
  try {
    await connectWithoutKey(config).health();
  } catch (error) {
    if (!(error instanceof VivariumError) || error.code !== "connection_refused") return;
    terminal.note(
      `viv: nothing listens at ${config.url}; starting the service in the background (viv down stops it)`,
    );
    await startInBackground(deps, listenOf(config.url));
  }
}

function listenOf(url: string): string {
  const { hostname, port, protocol } = new URL(url);
  return `${hostname}:${port || (protocol === "https:" ? 443 : 80)}`;
}
