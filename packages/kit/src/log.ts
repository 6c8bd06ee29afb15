/** The structured logger of all services. */
import { type Logger, pino } from "pino";

export type Log = Logger;

const STDOUT = 1;

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

interface Output {
  write: (line: string) => void;
}

/** A structured logger, on standard output by default: one JSON object per line, UTC time, secrets removed. */
export function createLog(name: string, level = "info", output: Output = standardOutput()): Log {
  return pino(
    {
      name,
      level,
      timestamp: pino.stdTimeFunctions.isoTime,
      base: { process: name },
      redact: {
        paths: SECRET_FIELDS.flatMap((field) => [field, `*.${field}`, `*.*.${field}`]),
        censor: "[removed]",
      },
    },
    output,
  );
}

/**
 * Hazard: a line that a full disk refuses ends the process by default, and what waits to be written is tried again
 * without end when the process exits. Here a failed write loses the lines that wait, and the next line is tried anew.
 */
function standardOutput(): Output {
  const open = () => {
    const opened = pino.destination(STDOUT);
    opened.on("error", () => {
      if (output !== opened) return;
      opened.destroy();
      output = open();
    });
    return opened;
  };
  let output = open();
  return { write: (line) => void output.write(line) };
}
