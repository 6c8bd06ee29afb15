/** Validates requests with zod, and words the first issue as one sentence with field, expectation and value. */
import type { FastifySchemaCompiler } from "fastify";
import type { z } from "zod";
import { ApiError } from "../errors/api-error.ts";
import { oneLine } from "./render-error.ts";

type Issue = z.core.$ZodIssue;
const VALUE_CHARS = 60;
/**
 * Fields that may contain secrets: their values are never repeated. A user name or a host of a registry may have been
 * written with the password beside it.
 */
const SECRET_FIELDS = new Set([
  ...["secrets", "secret", "env", "code", "connections", "authentication", "content"],
  ...["username", "registry_host"],
]);

export const compileValidator: FastifySchemaCompiler<z.ZodType> =
  ({ schema, httpPart }) =>
  (data: unknown) => {
    const input = data ?? {};
    const result = schema.safeParse(input);
    if (result.success) return { value: result.data };
    return { error: validationError(result.error.issues, input, httpPart === "querystring") };
  };

export function validationError(issues: readonly Issue[], input: unknown, isQuery = false): ApiError {
  const issue = issues[0];
  if (!issue) return new ApiError("validation", "the request is invalid");
  const field = fieldName(issue, isQuery);
  return new ApiError("validation", `${field}: ${expectation(issue)}${shownValue(issue, input)}`);
}

/** The error for a field that breaks a rule outside its schema. */
export function invalidField(field: string, expectation: string, value?: unknown): ApiError {
  const shown = value === undefined ? "" : `, got ${show(value)}`;
  return new ApiError("validation", `${keyName(field)}: ${expectation}${shown}`);
}

function fieldName(issue: Issue, isQuery: boolean): string {
  // An invalid key of a record is shown as the value, not as part of the field's path.
  const path = issue.code === "invalid_key" ? issue.path.slice(0, -1) : [...issue.path];
  if (issue.code === "unrecognized_keys" && issue.keys[0] !== undefined) path.push(issue.keys[0]);
  if (path.length === 0) return isQuery ? "query" : "body";
  return path
    .map((part, index) =>
      typeof part === "number" ? `[${part}]` : index === 0 ? keyName(part) : `.${keyName(part)}`,
    )
    .join("");
}

function keyName(key: PropertyKey): string {
  return oneLine(String(key), VALUE_CHARS);
}

function expectation(issue: Issue): string {
  switch (issue.code) {
    case "invalid_type":
      if (!issue.message.startsWith("Invalid input")) return issue.message;
      return issue.expected === "int" ? "must be a whole number" : `must be ${article(issue.expected)}`;
    case "invalid_value":
      return `must be one of ${issue.values.map((value) => JSON.stringify(value)).join(", ")}`;
    case "too_big":
      return issue.message.startsWith("Too big")
        ? `must be at most ${bound(issue.maximum, issue.origin)}`
        : issue.message;
    case "too_small":
      return issue.message.startsWith("Too small")
        ? `must be at least ${bound(issue.minimum, issue.origin)}`
        : issue.message;
    case "unrecognized_keys":
      return "unknown field; this object takes no others";
    case "invalid_key":
      return `its keys ${issue.issues[0]?.message ?? "must be valid names"}`;
    default:
      return issue.message;
  }
}

function bound(limit: number | bigint, origin: string): string {
  if (origin === "string") return `${limit} characters`;
  return origin === "array" ? `${limit} items` : String(limit);
}

function article(type: string): string {
  const noun = type === "record" ? "object" : type;
  return /^[aeio]/.test(noun) ? `an ${noun}` : `a ${noun}`;
}

function shownValue(issue: Issue, input: unknown): string {
  if (issue.code === "unrecognized_keys") return "";
  if (issue.code === "invalid_key") return `, got ${show(issue.path.at(-1))}`;
  const value = issue.path.reduce<unknown>(
    (at, part) =>
      typeof at === "object" && at !== null ? (at as Record<PropertyKey, unknown>)[part] : undefined,
    input,
  );
  // A missing value reveals nothing.
  if (value !== undefined && issue.path.some((part) => SECRET_FIELDS.has(String(part)))) return "";
  return `, got ${show(value)}`;
}

function show(value: unknown): string {
  if (value === undefined) return "nothing";
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === "object" && value !== null) return `an object of ${Object.keys(value).length}`;
  // 1e400 is parsed as Infinity, which JSON.stringify would show as null.
  if (typeof value === "number") return String(value);
  const text = JSON.stringify(value);
  if (text.length <= VALUE_CHARS) return text;
  return `${text.slice(0, VALUE_CHARS)}… of ${String(value).length} characters`;
}
