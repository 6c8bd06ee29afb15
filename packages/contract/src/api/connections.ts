/**
 * Connections: a credential that the service adds to a session's requests to one https origin, and that the session never
 * has (docs/spec/connections.md). Objects of requests are closed, and no field is null: a misspelt rule must not become a wider one.
 */
import { z } from "zod";
import { LIMITS } from "./limits.ts";
import { hasUtf8Escapes } from "./path-escapes.ts";
import { named, text, timestamp, wholeNumber } from "./wire-types.ts";

export const CONNECTION_NAME = /^[a-z0-9][a-z0-9._-]{0,62}$/;
/** `active` → `expired` → back to `active` by a replacement; both → `revoked`, which is final. */
export const CONNECTION_STATES = ["active", "expired", "revoked"] as const;
export type ConnectionState = (typeof CONNECTION_STATES)[number];

export const AUTH_TYPES = ["bearer", "header"] as const;
export type AuthType = (typeof AUTH_TYPES)[number];

/** Name of a method or header (RFC 9110). */
const TOKEN = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;
/** Methods that no rule can allow: their meaning is between a client and its next hop. */
const NEVER_METHODS = ["CONNECT", "TRACE"];
/** Headers that frame a request, steer proxies, or would change what the rules were checked against. */
const NEVER_HEADERS =
  /^(host|content-length|content-type|transfer-encoding|connection|upgrade|te|trailer|expect|cookie|accept-encoding|forwarded|x-http-method-override|keep-alive|http2-settings|(proxy|x-forwarded|sec)-.*)$/i;
/** Parts of a path that some server reads in another way than the rules. */
const AMBIGUOUS_PATH = /[?#;\\]|\/\/|%(2f|5c|2e|00)|(^|\/)\.\.?(\/|$)/i;
/** Marks that some servers make no difference between in a name, and those at its ends. */
const plainName = (name: string) => name.replaceAll(/[^0-9A-Za-z]/g, "-").replaceAll(/^-+|-+$/g, "");
/** Visible ASCII in which a `%` begins an escape. */
const PATH_CHARACTERS = /^\/(?:[!-$&-~]|%[0-9a-fA-F]{2})*$/;

const Method = z
  .string()
  .max(32, "must be at most 32 characters long")
  .regex(TOKEN, "must be the name of a method, such as GET")
  .transform((method) => method.toUpperCase())
  .refine((method) => method !== "*", "must be the name of a method; list each that is allowed")
  .refine((method) => !NEVER_METHODS.includes(method), "cannot be allowed through a Connection");

const PathPattern = z
  .string()
  .max(LIMITS.connectionPathChars, `must be at most ${LIMITS.connectionPathChars} characters long`)
  .regex(PATH_CHARACTERS, "must be an absolute path such as /v1/customers or /v1/*, percent-encoded")
  .refine(
    (path) => !AMBIGUOUS_PATH.test(path),
    "must be a path that reads in one way only: without query, fragment, dot segments, //, ;, \\ and encoded / \\ . or NUL",
  )
  // A request with other bytes is refused, so no pattern has them.
  .refine(hasUtf8Escapes, "must have percent escapes that are UTF-8");

/** Which requests get the credential: those that match one method and one path. Without any, none. */
export const ConnectionAllow = z.strictObject({
  methods: z
    .array(Method)
    .max(LIMITS.connectionMethods, `must hold at most ${LIMITS.connectionMethods} methods`)
    .default([]),
  paths: z
    .array(PathPattern)
    .max(LIMITS.connectionPaths, `must hold at most ${LIMITS.connectionPaths} paths`)
    .default([]),
});

const Authentication = z
  .strictObject({
    type: z.enum(AUTH_TYPES),
    secret: z
      .string()
      .min(1, "must not be empty")
      .max(LIMITS.connectionSecretChars, `must be at most ${LIMITS.connectionSecretChars} characters long`)
      .regex(
        /^[\x21-\x7e]+( [\x21-\x7e]+)*$/,
        "must be visible ASCII characters, with single spaces inside at most",
      )
      .meta({ writeOnly: true }),
    header_name: z
      .string()
      .max(64, "must be at most 64 characters long")
      .regex(TOKEN, "must be the name of a header")
      .refine(
        (name) => !NEVER_HEADERS.test(name) && !NEVER_HEADERS.test(plainName(name)),
        "cannot carry a credential; choose the header that the API expects",
      )
      .optional(),
  })
  .refine(({ type, header_name: name }) => type === "bearer" || name !== undefined, {
    path: ["header_name"],
    error: "is required with type header",
  })
  .refine(
    ({ type, header_name: name }) => type === "header" || !name || name.toLowerCase() === "authorization",
    {
      path: ["header_name"],
      error: "must be absent or Authorization with type bearer; use type header for another one",
    },
  );

/** Body of `POST …/connections` and of `PUT …/connections/{name}`, and item of a create's `connections`. */
const shape = {
  /** `https://host`. Control normalises it. */
  origin: text().max(300, "must be at most 300 characters long"),
  authentication: Authentication,
  allow: ConnectionAllow.optional().transform((allow) => allow ?? { methods: [], paths: [] }),
  /** Default: what is left of the session's lifetime; an hour without one. */
  ttl_seconds: wholeNumber(1, LIMITS.connectionTtlS, "a whole number of seconds").optional(),
};
const name = z
  .string()
  .regex(CONNECTION_NAME, "must match [a-z0-9][a-z0-9._-]{0,62}: lower case, digits, dot, dash, underscore");
export const ConnectionCreate = z.strictObject({ name, ...shape }).meta({ id: "ConnectionCreate" });
export type ConnectionCreate = z.input<typeof ConnectionCreate>;
export type ParsedConnectionCreate = z.output<typeof ConnectionCreate>;
/** The name may repeat that of the path. */
export const ConnectionReplace = z
  .strictObject({ name: name.optional(), ...shape })
  .meta({ id: "ConnectionReplace" });
export type ConnectionReplace = z.input<typeof ConnectionReplace>;
export type ParsedConnectionReplace = z.output<typeof ConnectionReplace>;

/** Without the credential, in any form. */
export const ConnectionStatus = named("Connection", {
  name: z.string(),
  origin: z.string(),
  state: z.enum(CONNECTION_STATES),
  suspended: z.literal(true).optional().meta({
    description:
      "present when three answers of the origin carried the credential: requests get 403 until it is replaced",
  }),
  auth_type: z.enum(AUTH_TYPES),
  header_name: z.string(),
  allow: z.object({ methods: z.array(z.string()), paths: z.array(z.string()) }),
  created_at: timestamp,
  expires_at: timestamp,
  revoked_at: timestamp.optional(),
  last_used_at: timestamp.optional(),
});
export type ConnectionStatus = z.infer<typeof ConnectionStatus>;

/** Oldest first; those that were revoked stay in it. */
export const ConnectionList = named("ConnectionList", { connections: z.array(ConnectionStatus) });
export type ConnectionList = z.infer<typeof ConnectionList>;
