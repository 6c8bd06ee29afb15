/** A process that takes one job, says so, and never ends it: the test kills it. */
import { openDatabase } from "../src/db/pool.ts";
import { JobQueue } from "../src/jobs/queue.ts";
import { silentLog } from "./silent-log.ts";

const { DATABASE_URL: url = "", JOB_KIND: kind = "" } = process.env;
const kinds = { [kind]: { retries: 3, backoffS: 1, expireS: 60, concurrency: 1, waiting: 5 } };
const queue = new JobQueue({ url, db: openDatabase({ url, log: silentLog }), log: silentLog, kinds });
await queue.open();
await queue.work({
  [kind]: async (id) => {
    process.stdout.write(`runs ${id}\n`);
    await new Promise(() => {});
  },
});
