/** Refusals and answers of the fake node. */
import type { ServerResponse } from "node:http";
import { NODE_ERRORS, type NodeErrorCode } from "@vivarium/contract/node";

export class Refusal extends Error {
  readonly code: NodeErrorCode;
  constructor(code: NodeErrorCode, message: string = code) {
    super(message);
    this.code = code;
  }
}

/** Returns a parsed body; refuses a body that does not fit its schema. */
export function valid<T>(
  result:
    | { success: true; data: T }
    | { success: false; error: { issues: { path: PropertyKey[]; message: string }[] } },
): T {
  if (result.success) return result.data;
  const issue = result.error.issues[0];
  throw new Refusal("invalid", `${issue?.path.join(".") || "body"}: ${issue?.message}`);
}

export function bodyOfRefusal(error: unknown): { code: NodeErrorCode; message: string } {
  return { code: error instanceof Refusal ? error.code : "internal", message: (error as Error).message };
}

/** Sends an error; once headers were sent, the answer can only be aborted. */
export function refuse(response: ServerResponse, error: unknown): void {
  if (response.headersSent || response.destroyed) return void response.destroy();
  answer(response, bodyOfRefusal(error), NODE_ERRORS[bodyOfRefusal(error).code].status);
}

export function answer(response: ServerResponse, body: unknown, status = 200): void {
  response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
}
