/**
 * The list of the agent's requests that the node passes on, and no others: path and method, and the kind, size and time
 * limit of the answer. The query is passed unchanged.
 */
import {
  GUEST_LIMITS,
  GuestCommands,
  GuestProcess,
  ITEM_BYTES,
  LISTS,
  type ListShape,
} from "@vivarium/contract/guest";
import { KIB } from "@vivarium/kit/sizes";
import { z } from "zod";
import { NodeError } from "../node-error.ts";

/** Longest query: it must fit the agent's header limit, with the longest path in escaped form. */
const QUERY_BYTES = 15 * KIB;
const SECOND_MS = 1000;
const SMALL_BYTES = 4 * KIB;

/** A call that is answered with JSON of bounded size. */
export interface JsonCall {
  kind: "json";
  schema: z.ZodType<unknown>;
  answerBytes: number;
  limitMs: number;
  hasBody: boolean;
  /** Whether the call may safely be repeated, so that a late answer is a retryable error. */
  isRepeatable: boolean;
}
export interface ListCall {
  kind: "list";
  shape: ListShape<unknown, unknown>;
}
type Call = JsonCall | ListCall | { kind: "upload" } | { kind: "content" } | { kind: "log" };

export type GuestCall = Call & { method: string; path: string; query: URLSearchParams };

const json = (schema: z.ZodType<unknown>, over: Partial<JsonCall> = {}): JsonCall => ({
  kind: "json",
  schema,
  answerBytes: GUEST_LIMITS.jsonBodyBytes,
  limitMs: 60 * SECOND_MS,
  hasBody: false,
  isRepeatable: false,
  ...over,
});
const list = (shape: ListShape<unknown, unknown>): ListCall => ({ kind: "list", shape });
const process = { answerBytes: ITEM_BYTES, limitMs: 20 * SECOND_MS };
const done = z.object({});

const CALLS: Readonly<Record<string, Call>> = {
  "GET /v1/commands": json(GuestCommands, {
    answerBytes: SMALL_BYTES,
    limitMs: 20 * SECOND_MS,
    isRepeatable: true,
  }),
  "GET /v1/files/read": { kind: "content" },
  "GET /v1/files/list": list(LISTS.entries),
  "GET /v1/files/find": list(LISTS.paths),
  "GET /v1/files/match": list(LISTS.files),
  "GET /v1/files/grep": list(LISTS.matches),
  "PUT /v1/files/write": { kind: "upload" },
  // The limit suits the largest tree, while others are searched or deleted at the same time.
  "DELETE /v1/files": json(done, { limitMs: 300 * SECOND_MS }),
  "POST /v1/files/mkdir": json(done, { hasBody: true }),
  "POST /v1/files/rename": json(done, { hasBody: true }),
  "POST /v1/processes": json(GuestProcess, { ...process, limitMs: 60 * SECOND_MS, hasBody: true }),
  "GET /v1/processes": list(LISTS.processes),
  "GET /v1/processes/{name}": json(GuestProcess, { ...process, isRepeatable: true }),
  "DELETE /v1/processes/{name}": json(GuestProcess, { ...process, isRepeatable: true }),
  "GET /v1/processes/{name}/logs": { kind: "log" },
};

const PROCESS_PATH = /^\/v1\/processes\/[a-z0-9][a-z0-9-]{0,62}(?=$|\/)/;

/** `target`: path and query as sent to the agent. */
export function guestCall(method: string, target: string): GuestCall {
  const [path = "", query = ""] = split(target);
  const call = CALLS[`${method} ${path.replace(PROCESS_PATH, "/v1/processes/{name}")}`];
  if (call === undefined) throw new NodeError("invalid", "no such call of a machine's guest");
  if (query.length > QUERY_BYTES)
    throw new NodeError("invalid", `the query has ${query.length} bytes; at most ${QUERY_BYTES} fit`);
  return { ...call, method, path: target, query: new URLSearchParams(query) };
}

function split(target: string): [string, string] {
  const at = target.indexOf("?");
  return at < 0 ? [target, ""] : [target.slice(0, at), target.slice(at + 1)];
}
