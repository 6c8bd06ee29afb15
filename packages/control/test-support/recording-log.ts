import type { Log } from "@vivarium/kit/log";

export type LoggedLine = { level: string; text: string };

/** A log that records its lines, also those of child logs. */
export function recordingLog(logged: LoggedLine[]): Log {
  const log: Record<string, unknown> = { level: "debug", child: () => log };
  for (const level of ["fatal", "error", "warn", "info", "debug", "trace"]) {
    log[level] = (fields: unknown, text?: string) => logged.push({ level, text: text ?? String(fields) });
  }
  return log as unknown as Log;
}
