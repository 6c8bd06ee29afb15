import { messageOf } from "@vivarium/kit/unknown-error";
import { VivariumError } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import { bootstrapKeyPath, isLocal } from "../connect.ts";
import { plainText } from "./table.ts";

/** Renders an error for a human: what happened, then what to do. Control characters, as from a session, are removed. */
export function explainError(error: unknown, config: CliConfig): string {
  if (error instanceof CliError) return joinLines(`viv: ${harmless(error.message)}`, error.hint);
  if (error instanceof VivariumError)
    return joinLines(`viv: ${harmless(messageWithId(error))}`, hintFor(error, config));
  return `viv: ${harmless(messageOf(error))}`;
}

/** An error of the service as one of `viv`, with a hint that only its verb knows. */
export function withHint(error: VivariumError, hint: string): CliError {
  return new CliError(messageWithId(error), { hint, cause: error });
}

function messageWithId({ message, code, requestId }: VivariumError): string {
  return requestId === undefined ? message : `${message} (${code}, request ${requestId})`;
}

function harmless(message: string): string {
  return message.split("\n").map(plainText).join("\n");
}

function hintFor(error: VivariumError, config: CliConfig): string | undefined {
  switch (error.code) {
    case "connection_refused":
      return isLocal(config.url)
        ? "Start the service with: viv up   (or: viv up --background). Another address: --url or VIV_URL."
        : "Check the address (--url or VIV_URL) and that the service runs there.";
    case "connection_failed":
      return "Check the address (--url or VIV_URL), the network and the service's log; then try again.";
    case "unauthenticated":
      return keyHint(config);
    case "not_found":
      return "Ids are case-sensitive. What there is: viv ls, viv checkpoint ls, viv template ls, viv volume ls; ended sessions: viv ls --state ended";
    case "session_ended":
      return "It cannot be woken any more. What its checkpoints hold can be: viv checkpoint ls, then viv checkpoint start ID";
    case "session_node_lost":
      return "Its host is gone for good. What checkpoints elsewhere hold: viv checkpoint ls; to forget it: viv rm ID";
    case "node_disk_pressure":
      return "The host's disk is nearly full. What takes room: viv tree; then viv rm ID or viv checkpoint rm ID";
    case "archive_unavailable":
      return "The session runs on. This service pauses only what it can store elsewhere too, and has no such store now.";
    case "size_unavailable":
      return "Choose another one with --size. On the service's host: node.log says whether its baseline was refused; ./setup bakes small, docs/operate/install.md says how to bake others.";
    case "account_concurrency_exceeded":
    case "key_concurrency_exceeded":
      return "End a session that is no longer needed: viv ls, then viv rm ID";
    case "egress_capped":
      return "What was sent today, and the cap: viv cap --org";
    case "internal":
      return isLocal(config.url)
        ? `The cause is in ${config.dataDir}/log/control.log under the request id.`
        : "The cause is in the service's log under the request id.";
    default:
      return error.retryable ? "This may pass: try again in a moment." : undefined;
  }
}

function keyHint(config: CliConfig): string {
  if (config.apiKey !== undefined)
    return "The key in VIV_API_KEY was refused. The service's own is in control/bootstrap.key of its data directory: without VIV_API_KEY, viv on its host reads it.";
  if (!isLocal(config.url)) return `Set VIV_API_KEY to an API key (viv_…) of the service at ${config.url}.`;
  const file = bootstrapKeyPath(config.dataDir);
  return `Set VIV_API_KEY, or let viv read ${file}, which the service makes at its first start (needs its user: sudo; another data directory: --data-dir).`;
}

function joinLines(...lines: (string | undefined)[]): string {
  return lines.filter((line) => line !== undefined).join("\n     ");
}
