import type { Refusal } from "./judge-request.ts";

/** The body of a refused request, for the guest. */
export function refusalBody({ error, code }: Refusal): string {
  return `${JSON.stringify({ error: `refused by the sandbox's gateway: ${error}`, code })}\n`;
}
