/**
 * Bounds of what the Connections of one session have together. Every record of the session shows the patterns, and the gateway
 * keeps tables for each secret while the session runs. Pure.
 */
import { LIMITS } from "@vivarium/contract/api";
import { SEALED_OVERHEAD_BYTES } from "../access/sealed-bytes.ts";
import type { ConnectionRow } from "../connection-records/store.ts";
import { invalidField } from "../http/validation.ts";
import type { NewConnection } from "./check.ts";

/** A Connection that counts: a new one, or one that is stored. */
type Counted = Pick<NewConnection, "secret" | "paths"> | Pick<ConnectionRow, "sealed" | "paths">;

/** `at` is what precedes a field's name. */
export function checkTotals(others: readonly Counted[], added: NewConnection, at = ""): void {
  const check = (
    field: string,
    { what, most, charsOf }: { what: string; most: number; charsOf: (of: Counted) => number },
  ) => {
    const present = others.reduce((sum, one) => sum + charsOf(one), 0);
    if (present + charsOf(added) <= most) return;
    throw invalidField(
      `${at}${field}`,
      `must leave the ${what} of the session's Connections at ${most} characters together at most; the others have ${present}`,
    );
  };
  check("authentication.secret", {
    ...{ what: "secrets", most: LIMITS.connectionSecretsChars, charsOf: secretChars },
  });
  check("allow.paths", {
    ...{ what: "path patterns", most: LIMITS.connectionPathsChars, charsOf: pathChars },
  });
}

/** Characters of the secret. A Connection that was revoked has none any more. */
function secretChars(of: Counted): number {
  if ("secret" in of) return of.secret.length;
  return of.sealed === null ? 0 : of.sealed.length - SEALED_OVERHEAD_BYTES;
}

const pathChars = ({ paths }: Counted) => paths.reduce((sum, path) => sum + path.length, 0);
