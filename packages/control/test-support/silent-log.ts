/** A log that writes nothing, for tests and the processes that they start. */
import { createLog, type Log } from "@vivarium/kit/log";

export const silentLog: Log = createLog("test", "silent");
