/** Lets a process of its own do a step of the daemon's work, until it dies at a crash point. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import path from "node:path";
import { text } from "node:stream/consumers";
import { expect } from "vitest";
import type { Work } from "./work-until-killed.ts";

const PROGRAM = path.join(import.meta.dirname, "work-until-killed.ts");

/** Returns what the process wrote. Fails if it did not die at the point. */
export async function dieAt(work: Work, env: Record<string, string> = {}): Promise<string> {
  const child = spawn(process.execPath, [PROGRAM, JSON.stringify(work)], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, ...env },
  });
  const [written, [, signal]] = await Promise.all([text(child.stdout), once(child, "exit")]);
  expect(signal, work.crashAt).toBe("SIGKILL");
  return written;
}
