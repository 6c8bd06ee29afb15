/** The structured logger of all services. */
import { type Logger, pino } from "pino";

export type Log = Logger;

/** Names of fields whose values are replaced by `[removed]` in log lines, at any of the first three levels. */
const SECRET_FIELDS = [
  "authorization",
  "api_key",
  "apiKey",
  "key",
  "token",
  "secret",
  "secrets",
  "password",
  "env",
];

/** A structured logger on standard output: one JSON object per line, UTC time, secrets removed. */
export function createLog(name: string, level = "info"): Log {
  return pino({
    name,
    level,
    timestamp: pino.stdTimeFunctions.isoTime,
    base: { process: name },
    redact: {
      paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]),
      censor: "[removed]",
    },
  });
}
