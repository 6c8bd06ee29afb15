/**
 * The operator's settings for guests, which every new session gets: variables of all its programs, and the sources of
 * apt. The operator writes them as one JSON file, so that a schema checks every field and names the wrong one.
 */
import { z } from "zod";

const LIMITS = { bytes: 64 * 1024, variables: 64, valueChars: 2_048, sources: 64, sourceChars: 512 };
/** Variables that some programs read in lower case and others in upper case. */
const PROXY_VARIABLES = ["http_proxy", "https_proxy", "no_proxy", "all_proxy"];

const Name = z
  .string()
  .regex(
    /^[A-Za-z_][A-Za-z0-9_]{0,127}$/,
    "must be a variable's name: letters, digits and _, no digit first",
  );
/** A value is written between quotes into a file that programs with different ideas of escapes read. */
const Value = z
  .string("must be text")
  .max(LIMITS.valueChars, `must be at most ${LIMITS.valueChars} characters`)
  .regex(
    /^[ !$-[\]-~]*$/,
    'must be printable ASCII without ", \\ and #; in a URL write them as %22, %5C and %23',
  );
const Source = z
  .string("must be text")
  .max(LIMITS.sourceChars, `must be at most ${LIMITS.sourceChars} characters`)
  .regex(
    /^deb(-src)? [ -~]+$/,
    "must be a line of sources.list, such as deb http://10.1.2.3/debian trixie main",
  );

export const GuestSettings = z.strictObject({
  /** Added to the environment of every program in the guest. What a session or its template sets itself wins. */
  variables: z.record(Name, Value).default({}),
  /** Lines of sources.list, in place of those of the template. Empty: those of the template. */
  apt_sources: z.array(Source).max(LIMITS.sources, `must be at most ${LIMITS.sources} lines`).default([]),
});
export type GuestSettings = z.infer<typeof GuestSettings>;

export const NO_GUEST_SETTINGS: GuestSettings = { variables: {}, apt_sources: [] };

/** Reads the operator's file. An error says which field is wrong, and never repeats a value, which may be a password. */
export function parseGuestSettings(text: string): GuestSettings {
  if (text.length > LIMITS.bytes) throw new Error(`must be at most ${LIMITS.bytes / 1024} KiB`);
  const parsed = GuestSettings.safeParse(readJson(text));
  if (!parsed.success) throw new Error(wordingOf(parsed.error));
  const { variables, apt_sources } = parsed.data;
  if (Object.keys(variables).length > LIMITS.variables)
    throw new Error(`variables: must be at most ${LIMITS.variables}`);
  return { variables: inBothCases(variables), apt_sources };
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Without the parser's message, which quotes the text.
    throw new Error('must be JSON, such as {"variables": {"PIP_INDEX_URL": "http://10.1.2.3:8080/simple/"}}');
  }
}

function wordingOf({ issues: [issue] }: z.ZodError): string {
  const place = issue?.path.map(String).join(".") ?? "";
  const why = issue?.code === "invalid_key" ? issue.issues[0]?.message : issue?.message;
  return place === "" ? `${why}` : `${place}: ${why}`;
}

/** Adds the other spelling of each proxy variable, unless it is given. */
function inBothCases(variables: Record<string, string>): Record<string, string> {
  const all = { ...variables };
  for (const lower of PROXY_VARIABLES) {
    const upper = lower.toUpperCase();
    const value = variables[lower] ?? variables[upper];
    if (value !== undefined) Object.assign(all, { [lower]: value, [upper]: value, ...all });
  }
  return all;
}
