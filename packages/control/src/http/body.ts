/** Parses request bodies as JSON objects, except those of routes that read the raw body. */
import { LIMITS } from "@vivarium/contract/api";
import type { FastifyInstance } from "fastify";
import { ApiError } from "../errors/api-error.ts";
import type { Server } from "./server.ts";

const decoder = new TextDecoder("utf-8", { fatal: true });
/** Finds texts that may contain the field `__proto__`, also in JSON escapes: copying it can set a prototype. */
const PROTO = /__proto__|\\u00(5f|70|72|6f|74)/i;

/** Parses every body as a JSON object in UTF-8, whatever Content-Type says. A body may be absent. */
export function acceptJsonBodies(server: FastifyInstance): void {
  server.removeAllContentTypeParsers();
  server.addContentTypeParser(
    "*",
    { parseAs: "buffer", bodyLimit: LIMITS.jsonBodyBytes },
    (_request, body, done) => {
      try {
        done(null, parseJsonObject(body as Buffer));
      } catch (error) {
        done(error as Error);
      }
    },
  );
  // Removed, because the framework refuses a request whose Content-Type is malformed.
  server.addHook("onRequest", (request, _reply, done) => {
    delete request.raw.headers["content-type"];
    done();
  });
}

/** Adds routes that read `request.raw` themselves, with any Content-Type. Their config has `takesRawBody`. */
export function takeRawBodies(server: Server, addRoutes: (raw: Server) => void): void {
  void server.register(async (raw) => {
    raw.removeAllContentTypeParsers();
    raw.addContentTypeParser("*", (_request, _body, done) => done(null));
    addRoutes(raw as unknown as Server);
  });
}

/** A body that has arrived whole: the next request of the connection can be read. */
export class UnreadableBody extends ApiError {
  constructor(message: string, options?: ErrorOptions) {
    super("validation", message, options);
  }
}

export function parseJsonObject(bytes: Buffer): object | undefined {
  if (bytes.length === 0) return undefined;
  const text = decode(bytes);
  const value = parse(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new UnreadableBody(`body: must be a JSON object, got ${kindOf(value)}`);
  }
  if (PROTO.test(text)) refuseProto(value);
  return value;
}

function decode(bytes: Buffer): string {
  try {
    return decoder.decode(bytes);
  } catch (cause) {
    throw new UnreadableBody("body: must be UTF-8, got bytes that are not", { cause });
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new UnreadableBody(`body: must be JSON; ${position(cause)}`, { cause });
  }
}

/**
 * Where the parser stopped, if its message ends with that. The rest of the message is dropped: it may quote the body, which
 * may contain a secret.
 */
function position(cause: unknown): string {
  const [, at, end] =
    /(?:in|after) JSON (at position \d+)(?: \(line \d+ column \d+\))?$|Unexpected (end of JSON input)$/.exec(
      String(cause),
    ) ?? [];
  if (end) return `it cannot be read past the ${end}`;
  return at ? `it cannot be read ${at}` : "it cannot be read";
}

/** Not recursive, because a deeply nested body would overflow the call stack. */
function refuseProto(body: object): void {
  const left: unknown[] = [body];
  while (left.length > 0) {
    const value = left.pop();
    if (typeof value !== "object" || value === null) continue;
    if (Object.hasOwn(value, "__proto__"))
      throw new UnreadableBody('body: must not hold a field named "__proto__"');
    for (const inner of Object.values(value)) left.push(inner);
  }
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "an array" : `a ${typeof value}`;
}
