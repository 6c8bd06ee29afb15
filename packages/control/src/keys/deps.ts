import type { Authenticator } from "../access/authenticate.ts";
import type { AuditDeps } from "../audit/append.ts";
import type { Database } from "../db/pool.ts";
import type { OpenRequests } from "../http/open-requests.ts";

export interface KeyDeps extends AuditDeps {
  db: Database;
  pepper: Buffer;
  authenticator: Authenticator;
  openRequests: OpenRequests;
}
