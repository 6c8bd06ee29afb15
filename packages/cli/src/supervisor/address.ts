/** The address at which the service listens: its check, and its URL. */
import { createServer } from "node:net";
import { messageOf } from "@vivarium/kit/unknown-error";
import { CliError } from "../cli-error.ts";

export const DEFAULT_INGRESS_LISTEN = "127.0.0.1:7401";

/** Fails unless this host can listen at the address: control would otherwise exit and be restarted again and again. */
export async function requireFreeAddress(listen: string): Promise<void> {
  const { host, port } = splitListen(listen);
  const probe = createServer();
  try {
    await new Promise<void>((resolve, reject) => {
      probe.once("error", reject);
      probe.listen({ host, port, exclusive: true }, resolve);
    });
  } catch (cause) {
    const reason = messageOf(cause);
    throw new CliError(`cannot listen on ${listen}: ${reason}`, {
      hint: "Another program may have the port. Choose another one with --listen HOST:PORT.",
      cause,
    });
  } finally {
    await new Promise((resolve) => probe.close(resolve));
  }
}

/** A warning if this host cannot listen at the address of previews: sessions run without, and the gateway tries again. */
export async function lackOfPreviews(listen: string): Promise<string | undefined> {
  try {
    await requireFreeAddress(listen);
    return undefined;
  } catch (error) {
    return `warning: no previews until this changes: ${messageOf(error).replace("cannot listen", "the gateway cannot listen")}. Another address: VIV_INGRESS_LISTEN`;
  }
}

function splitListen(listen: string): { host: string; port: number } {
  const split = listen.lastIndexOf(":");
  return { host: listen.slice(0, split).replaceAll(/[[\]]/g, ""), port: Number(listen.slice(split + 1)) };
}

/** The URL at which this host reaches a service that listens at an address. */
export function urlOf(listen: string): string {
  const { host, port } = splitListen(listen);
  if (host === "0.0.0.0") return `http://127.0.0.1:${port}`;
  if (host === "::") return `http://[::1]:${port}`;
  return `http://${host.includes(":") ? `[${host}]` : host}:${port}`;
}
