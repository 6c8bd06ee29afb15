import type { Log } from "@vivarium/kit/log";
import type { Authenticator } from "../access/authenticate.ts";
import type { Database } from "../db/pool.ts";
import type { EventFeed } from "./feed.ts";

export interface EventDeps {
  db: Database;
  eventFeed: EventFeed;
  authenticator: Authenticator;
  log: Log;
}
