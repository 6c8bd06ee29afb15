import { LIMITS } from "@vivarium/contract/api";
import type { FastifyInstance } from "fastify";
import { ApiError } from "../errors/api-error.ts";
import type { Server } from "./server.ts";

const decoder = new TextDecoder("utf-8", { fatal: true });
/** A name that assigns a prototype in careless code, plain or with JSON escapes. */
const PROTO = /__proto__|\\u00(5f|70|72|6f|74)/i;

/** JSON bodies by endpoint: whatever Content-Type says, a body is a UTF-8 JSON object, or absent. */
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
  // The header is ignored: a malformed one must not refuse a request either.
  server.addHook("onRequest", (request, _reply, done) => {
    delete request.raw.headers["content-type"];
    done();
  });
}

/** For routes that read `request.raw` themselves, whatever Content-Type says; they have `takesRawBody` in their config. */
export function takeRawBodies(server: Server, addRoutes: (raw: Server) => void): void {
  void server.register(async (raw) => {
    raw.removeAllContentTypeParsers();
    raw.addContentTypeParser("*", (_request, _body, done) => done(null));
    addRoutes(raw as unknown as Server);
  });
}

export function parseJsonObject(bytes: Buffer): object | undefined {
  if (bytes.length === 0) return undefined;
  const text = decode(bytes);
  const value = parse(text);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new ApiError("validation", `body: must be a JSON object, got ${kindOf(value)}`);
  }
  if (PROTO.test(text)) refuseProto(value);
  return value;
}

function decode(bytes: Buffer): string {
  try {
    return decoder.decode(bytes);
  } catch (cause) {
    throw new ApiError("validation", "body: must be UTF-8, got bytes that are not", { cause });
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new ApiError("validation", `body: must be JSON; ${position(cause)}`, { cause });
  }
}

/** Where the parser stopped, without the text around it: it may hold a secret. */
function position(cause: unknown): string {
  const found = /at position \d+|line \d+ column \d+|end of JSON input/.exec(String(cause));
  return found
    ? `it cannot be read ${found[0].startsWith("end") ? `past the ${found[0]}` : found[0]}`
    : "it cannot be read";
}

/** With a stack of its own: a body may be nested as deep as it is long. */
function refuseProto(body: object): void {
  const left: unknown[] = [body];
  while (left.length > 0) {
    const value = left.pop();
    if (typeof value !== "object" || value === null) continue;
    if (Object.hasOwn(value, "__proto__"))
      throw new ApiError("validation", 'body: must not hold a field named "__proto__"');
    for (const inner of Object.values(value)) left.push(inner);
  }
}

function kindOf(value: unknown): string {
  if (value === null) return "null";
  return Array.isArray(value) ? "an array" : `a ${typeof value}`;
}
