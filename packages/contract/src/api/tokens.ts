/** Scoped tokens: credentials for one session, with a part of what a key may do there (docs/spec/access.md). */
import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { closed, named, timestamp, wholeNumber } from "./wire-types.ts";

/** In the order in which answers list them. */
export const CAPABILITIES = ["pty", "exec", "files", "tunnel", "view"] as const;
export type Capability = (typeof CAPABILITIES)[number];

/**
 * The endpoints that a scoped token reaches, by method and route: one of the capabilities is enough. Every other endpoint
 * is forbidden.
 */
export const TOKEN_ENDPOINTS: Readonly<Record<string, readonly Capability[]>> = {
  "GET /v1/whoami": CAPABILITIES,
  "GET /v1/sessions/:id": ["view"],
  "GET /v1/sessions/:id/checkpoints": ["view"],
  "GET /v1/sessions/:id/egress": ["view"],
  "POST /v1/sessions/:id/exec": ["exec"],
  // Each session that is named must be the token's own.
  "POST /v1/sessions/batch/exec": ["exec"],
  "POST /v1/sessions/:id/processes": ["exec"],
  "GET /v1/sessions/:id/processes": ["exec", "view"],
  "GET /v1/sessions/:id/processes/:name": ["exec", "view"],
  "DELETE /v1/sessions/:id/processes/:name": ["exec"],
  "GET /v1/sessions/:id/processes/:name/logs": ["exec", "view"],
  "GET /v1/sessions/:id/files": ["files"],
  "PUT /v1/sessions/:id/files": ["files"],
  "POST /v1/sessions/:id/files": ["files"],
  "DELETE /v1/sessions/:id/files": ["files"],
  "PUT /v1/sessions/:id/files/batch": ["files"],
  "POST /v1/sessions/:id/files/mkdir": ["files"],
  "POST /v1/sessions/:id/files/rename": ["files"],
  "GET /v1/sessions/:id/files/stream": ["files"],
  "PUT /v1/sessions/:id/files/stream": ["files"],
  "GET /v1/sessions/:id/pty": ["pty"],
  "GET /v1/sessions/:id/tunnel": ["tunnel"],
};

/**
 * Body of `POST /v1/sessions/{id}/tokens`. No capabilities, or an empty list, means all of them; a misspelt or null field must
 * not mean that.
 */
export const TokenCreate = closed("TokenCreate", {
  ttl_seconds: wholeNumber(1, LIMITS.tokenTtlS, "a whole number of seconds"),
  capabilities: z
    .array(z.enum(CAPABILITIES))
    .refine((list) => new Set(list).size === list.length, "must name each capability once")
    .optional(),
});
export type TokenCreate = z.input<typeof TokenCreate>;

const record = {
  /** 64 hexadecimal digits, by which the token is revoked; the token cannot be derived from it. */
  hash: z.string(),
  capabilities: z.array(z.enum(CAPABILITIES)),
  created_at: timestamp,
  expires_at: timestamp,
};

/** Answer of `POST …/tokens`: the only one with the token itself. */
export const TokenCreated = named("TokenCreated", { token: z.string(), ...record });
export type TokenCreated = z.infer<typeof TokenCreated>;

/** To the minute in `last_used_at`. */
export const TokenRecord = named("Token", { ...record, last_used_at: timestamp.optional() });
export type TokenRecord = z.infer<typeof TokenRecord>;

export const TokenList = z.array(TokenRecord);
