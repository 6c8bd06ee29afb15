/** API keys of an organisation and of its projects (docs/spec/access.md). */
import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { closed, instant, named, plainText, text, timestamp, wholeNumber } from "./wire-types.ts";

/** `read`: only requests that change nothing. */
export const KEY_ROLES = ["full", "read"] as const;
export type KeyRole = (typeof KEY_ROLES)[number];

/** Body of `POST /v1/api-keys`. Closed: a misspelt `role` must not make a key that may do everything. */
export const ApiKeyCreate = closed("ApiKeyCreate", {
  name: plainText(1, LIMITS.nameChars),
  /** Binds the key to this project. Default: the project of the calling key, if that has one. */
  project_id: text().nullish(),
  role: z.enum(KEY_ROLES).nullish(),
  /** Default: when the calling key expires, if it does. */
  expires_at: instant("must be an RFC 3339 timestamp").nullish(),
  /** Limit of live sessions of this key alone. Default: that of the calling key, if that has one. */
  concurrent_sessions: wholeNumber(0, LIMITS.keyCeilingMax).nullish(),
});
export type ApiKeyCreate = z.input<typeof ApiKeyCreate>;

const record = {
  id: z.string(),
  name: z.string(),
  /** The first characters of the key; absent for a key of an earlier version that was not used since. */
  prefix: z.string().optional(),
  project_id: z.string().optional(),
  role: z.enum(KEY_ROLES),
  concurrent_sessions: z.int().optional(),
  created_at: timestamp,
  expires_at: timestamp.optional(),
  /** To the minute. */
  last_used_at: timestamp.optional(),
};

export const ApiKeyRecord = named("ApiKey", record);
export type ApiKeyRecord = z.infer<typeof ApiKeyRecord>;

/** Answer of `POST /v1/api-keys`: the only one with the key itself. */
export const ApiKeyCreated = named("ApiKeyCreated", { ...record, key: z.string() });
export type ApiKeyCreated = z.infer<typeof ApiKeyCreated>;

export const ApiKeyList = named("ApiKeyList", { api_keys: z.array(ApiKeyRecord) });
export type ApiKeyList = z.infer<typeof ApiKeyList>;
