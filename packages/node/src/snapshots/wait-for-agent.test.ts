import { GENERATION } from "@vivarium/contract/guest";
import { expect, test } from "vitest";
import { type BootingGuest, waitForAgent } from "./wait-for-agent.ts";

const AN_HOUR_MS = 3_600_000;

/** A guest whose agent answers at the call with this number, and whose console has these texts, one for each read. */
function guest({
  answersAt = Number.POSITIVE_INFINITY,
  console = [] as string[],
  alive = true,
}): BootingGuest {
  let calls = 0;
  const health = async () => {
    calls++;
    if (calls < answersAt) throw new Error("no answer");
    return { generation: GENERATION } as Awaited<ReturnType<BootingGuest["agent"]["health"]>>;
  };
  return { agent: { health }, qmp: { execute: async () => console.shift() ?? "" }, alive: () => alive };
}

test("a guest that writes to its console is waited for beyond the limit of silent ones", async () => {
  const speaking = guest({ answersAt: 4, console: ["[    0.1] booting\n"] });
  await expect(waitForAgent(speaking, { silentMs: 0, totalMs: AN_HOUR_MS })).resolves.toBeUndefined();
});

test("a guest that stays silent is given up at the limit of silent ones", async () => {
  const waited = waitForAgent(guest({ answersAt: 4 }), { silentMs: 0, totalMs: AN_HOUR_MS });
  await expect(waited).rejects.toThrow("(console: silent)");
});

test("a guest whose QEMU has ended is given up at once, with the last lines of its console", async () => {
  const ended = guest({ console: ["first\nlast\n"], alive: false });
  const waited = waitForAgent(ended, { silentMs: AN_HOUR_MS, totalMs: AN_HOUR_MS });
  await expect(waited).rejects.toThrow("(console: first | last)");
});
