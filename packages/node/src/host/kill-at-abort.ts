/** Kills a QEMU when a signal aborts, until it is undone: what waits for its guest fails soon then. */
import { killAndWait } from "@vivarium/kit/process-identity";
import type { UndoStack } from "@vivarium/kit/undo-stack";
import type { Qemu } from "./jail.ts";

export function killAtAbort({ process }: Qemu, undo: UndoStack, signal: AbortSignal): void {
  const kill = () => void killAndWait(process).catch(() => {});
  signal.addEventListener("abort", kill, { once: true });
  undo.push("listener", () => signal.removeEventListener("abort", kill));
  if (signal.aborted) kill();
}
