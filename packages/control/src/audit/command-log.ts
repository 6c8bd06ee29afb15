/**
 * Audit entries of commands: written when a command starts, and completed when it ends. A process that dies leaves those of
 * its running commands pending.
 */
import type { CommandMeta } from "@vivarium/contract/api";
import type { Caller } from "../access/caller.ts";
import type { AuditDeps } from "./append.ts";
import { captureCommand } from "./capture.ts";
import { completedRow, newRow } from "./entry.ts";
import type { EntryQueue } from "./entry-queue.ts";

type CommandEnd = Pick<CommandMeta, "exit_code" | "duration_ms" | "timed_out">;

/** The audit entry of a started command. Only the first call of `ended` or `lost` counts. */
export interface CommandEntry {
  ended(end: CommandEnd): void;
  /** The end of the command is unknown. */
  lost(): void;
}

interface Started {
  session: { id: string; org_id: string; command_capture: string };
  by: Caller;
  kind: NonNullable<CommandMeta["kind"]>;
  argv: readonly string[];
  /** Values that the entry masks. */
  secrets: readonly string[];
}

interface CommandLogDeps extends AuditDeps {
  auditQueue: EntryQueue;
  pepper: Buffer;
}

export class CommandLog {
  readonly #deps: CommandLogDeps;

  constructor(deps: CommandLogDeps) {
    this.#deps = deps;
  }

  started({ session, by, kind, argv, secrets }: Started): CommandEntry {
    const { auditQueue, auditKey, pepper } = this.#deps;
    const context = { pepper, orgId: session.org_id, secrets };
    const row = newRow(auditKey, {
      by: { ...by, orgId: session.org_id },
      action: "session.exec",
      target: session.id,
      sessionId: session.id,
      outcome: "pending",
      meta: { kind, ...captureCommand(session.command_capture, argv, context) },
    });
    auditQueue.add(row);
    let isOver = false;
    const complete = (outcome: "ok" | "error", end: CommandEnd) => {
      if (!isOver) auditQueue.complete(completedRow(auditKey, row, outcome, end));
      isOver = true;
    };
    return { ended: (end) => complete("ok", end), lost: () => complete("error", {}) };
  }
}
