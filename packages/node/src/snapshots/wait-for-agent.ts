/** Waits until the agent of a guest that boots answers. */
import { type AgentClient, assertGeneration } from "../guest/client.ts";
import type { MachineShape } from "../qemu/arguments.ts";
import type { Qmp } from "../qemu/qmp.ts";

/** Time limit of a boot, which takes 10-20 s under emulation. */
const BOOT_LIMIT_MS = 300_000;
/** KVM that does not work mostly shows by a guest that never writes to its console; a slow or busy host's guest does. */
const SILENT_LIMIT_MS = { kvm: 60_000, tcg: BOOT_LIMIT_MS };

export const bootLimits = ({ accelerator }: Pick<MachineShape, "accelerator">) => ({
  silentMs: SILENT_LIMIT_MS[accelerator],
  totalMs: BOOT_LIMIT_MS,
});

export interface BootingGuest {
  agent: Pick<AgentClient, "health">;
  qmp: Pick<Qmp, "execute">;
  /** Whether its QEMU runs. */
  alive: () => boolean;
}

/** A guest that has written nothing to its console is given up after `silentMs`, any other one after `totalMs`. */
export async function waitForAgent(
  { agent, qmp, alive }: BootingGuest,
  { silentMs, totalMs }: { silentMs: number; totalMs: number },
): Promise<void> {
  const began = performance.now();
  let said = "";
  for (;;) {
    try {
      assertGeneration(await agent.health());
      return;
    } catch (error) {
      const waitedMs = performance.now() - began;
      if (alive() && waitedMs < silentMs) continue;
      // A read takes the text out of the buffer.
      said += String(await qmp.execute("ringbuf-read", { device: "console", size: 4096 }).catch(() => ""));
      const last = said.trim().split("\n").slice(-8).join(" | ");
      if (alive() && waitedMs < totalMs && last !== "") continue;
      throw new Error(
        `the guest did not come up within ${Math.round(waitedMs / 1000)} s (console: ${last || "silent"})`,
        { cause: error },
      );
    }
  }
}
