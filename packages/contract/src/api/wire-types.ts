/** Small building blocks shared by the schemas of the public interface (docs/spec/conventions.md). */
import { z } from "zod";
import { LIMITS } from "./limits.ts";

/** Schema of an object that docs/openapi.yaml has under this name. Unknown fields of a request are ignored. */
export function named<Shape extends z.ZodRawShape>(name: string, shape: Shape) {
  return z.object(shape).meta({ id: name });
}

/** As `named`, for a body in which a misspelt field would give more than was meant: unknown fields are refused. */
export function closed<Shape extends z.ZodRawShape>(name: string, shape: Shape) {
  return z.strictObject(shape).meta({ id: name });
}

/** A page of a list; `next_cursor` leads to the next one. */
export function page<Shape extends z.ZodRawShape>(name: string, items: Shape) {
  return named(name, { ...items, next_cursor: z.string().optional() });
}

/** A time in an answer: RFC 3339 in UTC, with milliseconds and `Z`. */
export const timestamp = z.string().meta({ format: "date-time" });

/** A time in a request: RFC 3339 with any offset; `t` and `z` may be lower case. */
export function instant(error: string) {
  return z
    .string(error)
    .overwrite((value) => value.replace(/[tz]/g, (letter) => letter.toUpperCase()))
    .check(z.iso.datetime({ offset: true, error }));
}

/**
 * Any text of a request except file contents. PostgreSQL cannot store NUL, no argument or name on Linux contains one,
 * and a lone surrogate cannot be written as UTF-8. `typeError` builds the message for a value that is not a string.
 */
export function text(typeError?: string) {
  return z
    .string(typeError)
    .refine((value) => value.isWellFormed(), "must be valid Unicode")
    .refine((value) => !value.includes("\0"), "must not contain a NUL character");
}

/** A whole number from `min` to `max`. A value of another type and a value out of range give the same message. */
export function wholeNumber(min: number, max: number, what = "a whole number") {
  const words = `must be ${what} from ${min} to ${max}`;
  return z.int(words).min(min, words).max(max, words);
}

/** A `*_ms` request field: a whole number from 0 to `max`; 0 and null equal omitted. */
export function durationMs(max: number) {
  return wholeNumber(0, max, "a whole number of milliseconds")
    .nullish()
    .transform((value) => value || undefined);
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what this refuses
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;

/** Text without control characters or lone surrogates, `min` to `max` characters (code points). */
export function plainText(min: number, max: number) {
  return z
    .string()
    .refine((value) => value.isWellFormed(), "must be valid Unicode")
    .refine((value) => !CONTROL.test(value), "must not contain control characters")
    .refine(
      (value) => {
        const chars = [...value].length;
        return chars >= min && chars <= max;
      },
      `must be ${min > 0 ? `${min} to` : "at most"} ${max} characters long`,
    );
}

/** Schema of the labels of a session or project. */
export const labels = z
  .record(
    plainText(1, LIMITS.labelKeyChars),
    text()
      .refine(
        (value) => [...value].length <= LIMITS.labelValueChars,
        `must be at most ${LIMITS.labelValueChars} characters long`,
      )
      .meta({ maxLength: LIMITS.labelValueChars }),
  )
  .refine(
    (map) => Object.keys(map).length <= LIMITS.labelEntries,
    `must hold at most ${LIMITS.labelEntries} entries`,
  );

const ENV_KEY = /^[A-Za-z_][A-Za-z0-9_]*$/;

/** Schema of `env` and of `secrets`. The caller, which knows both, checks the limit on both together. */
export const variables = z
  .record(
    z
      .string()
      .regex(ENV_KEY, "must match [A-Za-z_][A-Za-z0-9_]*")
      .max(LIMITS.envKeyChars, `must be at most ${LIMITS.envKeyChars} characters long`),
    text(),
  )
  .refine((map) => variablesBytes(map) <= LIMITS.envTotalBytes, {
    error: ({ input }) =>
      `must be at most ${LIMITS.envTotalBytes} bytes together, got ${variablesBytes(input as Record<string, string>)}`,
  });

export function variablesBytes(map: Record<string, string>): number {
  const encoder = new TextEncoder();
  return Object.entries(map).reduce(
    (sum, [key, value]) => sum + key.length + encoder.encode(value).length,
    0,
  );
}
