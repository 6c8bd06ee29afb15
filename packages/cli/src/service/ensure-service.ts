import { VivariumError } from "@vivarium/sdk";
import { connectWithoutKey, isLocal } from "../connect.ts";
import type { Context } from "../context.ts";
import { startInBackground } from "./start-in-background.ts";

/** Starts the service in the background if nothing listens at the local URL. */
export async function ensureService({ config, terminal }: Context): Promise<void> {
  if (!isLocal(config.url)) return;
  try {
    await connectWithoutKey(config).health();
  } catch (error) {
    if (!(error instanceof VivariumError) || error.code !== "connection_refused") return;
    terminal.note(
      `viv: nothing listens at ${config.url}; starting the service in the background (viv down stops it)`,
    );
    await startInBackground({ config: { ...config, listen: listenOf(config.url) }, terminal });
  }
}

function listenOf(url: string): string {
  const { hostname, port, protocol } = new URL(url);
  return `${hostname}:${port || (protocol === "https:" ? 443 : 80)}`;
}
