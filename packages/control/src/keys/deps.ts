import type { Authenticator } from "../access/authenticate.ts";
import type { Database } from "../db/pool.ts";
import type { OpenRequests } from "../http/open-requests.ts";

export interface KeyDeps {
  db: Database;
  pepper: Buffer;
  authenticator: Authenticator;
  openRequests: OpenRequests;
}
