/** Functions for the programs that run inside a host in a machine, against its service. */
import { readFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Client, type Session } from "@vivarium/sdk";
import { longFetch } from "@vivarium/sdk/long-fetch";

const ANSWERS_WITHIN_MS = 600_000;
/** Where `before-reboot.ts` notes what `after-reboot.ts` looks for. */
export const BEFORE_REBOOT = "/var/tmp/before-reboot.json";
export const DATA_DIR = process.env.VIV_DATA_DIR ?? "/var/lib/vivarium";

/** A client of the host's service, or of a second one with another data directory and address. */
export function ownClient({ dataDir = DATA_DIR, url }: { dataDir?: string; url?: string } = {}): Client {
  const apiKey = readFileSync(`${dataDir}/control/bootstrap.key`, "utf8").trim();
  return new Client({ apiKey, fetch: longFetch, retries: 5, ...(url !== undefined && { url }) });
}

/** Runs a shell command in a session and returns its output; throws when it fails. */
export async function shell(session: Session, script: string): Promise<string> {
  const { stdout, stderr, exit_code } = await session.exec({
    command: ["sh", "-c", script],
    timeout_ms: 300_000,
  });
  if (exit_code !== 0) throw new Error(`in the session, ${script} ended with code ${exit_code}: ${stderr}`);
  return stdout;
}

/** Waits until the service answers; it may have been down. */
export async function untilHealthy(client: Client): Promise<void> {
  const deadline = Date.now() + ANSWERS_WITHIN_MS;
  for (;;) {
    const health = await client.health().catch(() => undefined);
    if (health?.status === "ok") return;
    if (Date.now() > deadline) throw new Error(`the service does not answer: ${JSON.stringify(health)}`);
    await sleep(1_000);
  }
}

/** Throws unless both are equal. */
export function expectEqual(actual: unknown, wanted: unknown, what: string): void {
  const [is, should] = [JSON.stringify(actual), JSON.stringify(wanted)];
  if (is !== should) throw new Error(`${what} is ${is}; expected ${should}`);
}
