import { describe, expect, test } from "vitest";
import { ERROR_ALIASES, ERRORS, type ErrorCode, type ErrorRow, isErrorCode } from "./errors.ts";

/** The table of docs/spec/errors.md: code, also seen as, HTTP, retryable. */
const INTERFACE_ROWS = `
validation                   | bad_request                                     | 400        | no
payload_too_large            |                                                 | 400        | no
unauthenticated              | unauthorized                                    | 401        | no
payment_required             |                                                 | 402        | no
forbidden                    |                                                 | 403        | no
not_found                    |                                                 | 404        | no
method_not_allowed           |                                                 | 405        | no
conflict                     |                                                 | 409        | no
session_not_live             |                                                 | 409        | yes
org_has_other_members        |                                                 | 409        | no
no_restore_point             |                                                 | 409        | no
idempotency_key_in_progress  |                                                 | 409        | yes
session_ended                |                                                 | 410        | no
session_node_lost            |                                                 | 410        | no
rate_limited                 | concurrency_limit_exceeded, rate_limit_exceeded | 429        | yes
account_concurrency_exceeded |                                                 | 429        | yes
key_concurrency_exceeded     |                                                 | 429        | yes
bad_gateway                  |                                                 | 502        | yes
session_unavailable          |                                                 | 503        | yes
session_node_unavailable     |                                                 | 503        | yes
template_version_unavailable |                                                 | 502 or 503 | yes
archive_unavailable          |                                                 | 503        | no
size_unavailable             |                                                 | 503        | no
node_disk_pressure           |                                                 | 503        | yes
unavailable                  | service_unavailable                             | 502 or 503 | yes
internal                     | internal_error                                  | 500        | no
error                        |                                                 | any        | no
`;

/** Codes beyond that table. */
const BEYOND_ROWS = `
egress_capped                |                                                 | 409        | no
`;

/** Retry-After in seconds per code; every other code never sends the header. */
const RETRY_AFTER_S: Partial<Record<ErrorCode, number>> = {
  session_not_live: 1,
  idempotency_key_in_progress: 1,
  rate_limited: 1,
  account_concurrency_exceeded: 5,
  key_concurrency_exceeded: 5,
  bad_gateway: 2,
  session_unavailable: 2,
  session_node_unavailable: 5,
  template_version_unavailable: 5,
  node_disk_pressure: 30,
  unavailable: 5,
};

const rows = (INTERFACE_ROWS + BEYOND_ROWS)
  .trim()
  .split(/\n+/)
  .map((line) => line.split("|").map((cell) => cell.trim()))
  .map(([code = "", aliases = "", status = "", retryable = ""]) => ({ code, aliases, status, retryable }));

describe("the error table is the interface's, and what is beyond it", () => {
  test("with the same codes, no more and no fewer", () => {
    expect(Object.keys(ERRORS).toSorted()).toEqual(rows.map((row) => row.code).toSorted());
  });

  test.each(rows)("$code is $status, retryable: $retryable", ({ code, status, retryable }) => {
    if (!isErrorCode(code)) throw new Error(`no row for ${code}`);
    const row: ErrorRow = ERRORS[code];
    if (status !== "any") expect(status.split(" or ")).toContain(String(row.status));
    expect(row.retryable).toBe(retryable === "yes");
    expect(row.retryAfterS).toBe(RETRY_AFTER_S[code]);
  });

  test("only a retryable code asks to come back", () => {
    for (const row of Object.values<ErrorRow>(ERRORS)) if (row.retryAfterS) expect(row.retryable).toBe(true);
  });

  test("older equivalents lead to today's codes", () => {
    const expected = rows.flatMap(({ code, aliases }) =>
      aliases === "" ? [] : aliases.split(", ").map((alias) => [alias, code]),
    );
    expect(ERROR_ALIASES).toEqual(Object.fromEntries(expected));
  });

  test("a name that is no code is not taken for one", () => {
    for (const name of ["", "bad_request", "toString", "__proto__"]) expect(isErrorCode(name)).toBe(false);
  });
});
