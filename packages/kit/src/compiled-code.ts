/**
 * Compiled code of the project's modules, kept in the checkout: a command that need not compile them starts in half the
 * time. Only where this process's user owns the checkout. Code from a folder of another user would run with our rights.
 */
import { statSync } from "node:fs";
import { enableCompileCache, flushCompileCache } from "node:module";
import path from "node:path";

const ROOT = path.join(import.meta.dirname, "../../..");

/** The folder of this checkout's compiled code; undefined where none may be kept. */
export function compiledCodeDir(root = ROOT): string | undefined {
  return statSync(root).uid === process.geteuid?.() ? path.join(root, ".compiled") : undefined;
}

/** Modules that are imported from now on are read compiled, and kept so when the process ends. */
export function keepCompiledCode(): void {
  const dir = compiledCodeDir();
  if (dir !== undefined) enableCompileCache(dir);
}

/** Keeps what was imported so far: for processes that give up their rights, or are ended by a signal that nothing catches. */
export function saveCompiledCode(): void {
  flushCompileCache();
}
