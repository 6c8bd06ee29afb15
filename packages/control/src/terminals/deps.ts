/** Dependencies of terminals and tunnels. */
import type { CommandLog } from "../audit/command-log.ts";
import type { EntryQueue } from "../audit/entry-queue.ts";
import type { Upgrades } from "../http/upgrades.ts";
import type { MoveDeps } from "../moves/deps.ts";
import type { Attachments } from "./attachments.ts";

export interface TerminalDeps extends MoveDeps {
  attachments: Attachments;
  upgrades: Upgrades;
  commandLog: CommandLog;
  auditQueue: EntryQueue;
  /** How long an upgrade waits for its session to be live. */
  upgradeWaitMs: number;
}
