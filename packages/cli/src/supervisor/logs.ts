/**
 * Where the processes of the service write their logs: each to a file of its own, or all to the supervisor's standard
 * output, which is systemd's journal where the service is a unit.
 */
import { readFile } from "node:fs/promises";
import { type Layout, logFile } from "./layout.ts";
import { startLogCap } from "./log-cap.ts";

export const LOG_PLACES = ["files", "stdout"] as const;
export type LogPlace = (typeof LOG_PLACES)[number];

export interface Logs {
  /** The file of a process's log; undefined: standard output. */
  fileOf(name: string): string | undefined;
  /** Where a human reads the log of a process, or of all. */
  placeOf(name?: string): string;
  /** The rest of the last line of a process's log that begins so; undefined without one, or a file. */
  lastWords(name: string, beginning: string): Promise<string | undefined>;
  /** Keeps the files from growing; returns a function that ends that. */
  startCap(): () => void;
}

export function logsOf(place: LogPlace, layout: Layout): Logs {
  if (place === "stdout")
    return {
      fileOf: () => undefined,
      placeOf: () => "this log",
      lastWords: async () => undefined,
      startCap: () => () => {},
    };
  return {
    fileOf: (name) => logFile(layout, name),
    placeOf: (name) => (name === undefined ? layout.logDir : logFile(layout, name)),
    lastWords: (name, beginning) => readLastWords(logFile(layout, name), beginning),
    startCap: () => startLogCap(layout.logDir),
  };
}

async function readLastWords(file: string, beginning: string): Promise<string | undefined> {
  const lines = (await readFile(file, "utf8").catch(() => "")).split("\n");
  return lines.findLast((line) => line.startsWith(beginning))?.slice(beginning.length);
}
