import type { SessionRecord } from "@vivarium/sdk";
import { CliError } from "../cli-error.ts";
import { renderSessions } from "../print/session.ts";
import { plainText } from "../print/table.ts";
import { isTooShort, SHORTEST_BEGINNING } from "./match-session.ts";

const LISTED = 20;
const WHAT_THERE_IS = "What there is: viv ls; ended sessions: viv ls --state ended";

/** The error of a reference that matches no session, or more than one. */
export class UnknownSession extends CliError {
  readonly code: "not_found" | "ambiguous";

  constructor(message: string, code: UnknownSession["code"], hint = WHAT_THERE_IS) {
    super(message, { hint });
    this.code = code;
  }
}

/** No session matches; `ended` are ended sessions that do. */
export function unknownSession(reference: string, ended: readonly SessionRecord[]): UnknownSession {
  const quoted = quote(reference);
  const message =
    ended.length === 0
      ? `no session has ${quoted} for its name or as the beginning of its id`
      : `no session fits ${quoted} any more; ended:\n${listOf(ended)}`;
  return new UnknownSession(message, "not_found");
}

/** At least one session matches, but the reference is ambiguous. */
export function doubtfulSession(
  reference: string,
  matches: readonly SessionRecord[],
  isCut: boolean,
): UnknownSession {
  const ambiguous = (why: string, hint: string) => {
    const fits = matches.length === 1 ? "a session" : `${matches.length} sessions`;
    const message = `${quote(reference)} fits ${fits}${why}:\n${listOf(matches)}`;
    return new UnknownSession(message, "ambiguous", hint);
  };
  if (matches.some((session) => isTooShort(reference, session)))
    return ambiguous(
      ", but is too short for the beginning of an id",
      `Give at least ${SHORTEST_BEGINNING} characters.`,
    );
  if (!isCut) return ambiguous("", "Give the id of one, or more of its beginning.");
  const isName = matches.some(({ name }) => name === reference);
  return ambiguous(
    ", and there are more sessions than a list holds",
    isName ? "Give the whole id." : "Give the whole id, or the name.",
  );
}

function quote(reference: string): string {
  return `"${plainText(reference)}"`;
}

function listOf(sessions: readonly SessionRecord[]): string {
  const lines = renderSessions(sessions.slice(0, LISTED), new Date()).split("\n");
  const more = sessions.length - LISTED;
  return [...lines, ...(more > 0 ? [`and ${more} more`] : [])].map((line) => `     ${line}`).join("\n");
}
