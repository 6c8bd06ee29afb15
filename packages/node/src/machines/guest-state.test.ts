import { GENERATION } from "@vivarium/contract/guest";
import { sleep } from "@vivarium/kit/clock";
import { afterEach, expect, it } from "vitest";
import type { AgentClient } from "../guest/client.ts";
import { identify } from "../host/process.ts";
import type { Qmp } from "../qemu/qmp.ts";
import { letGo } from "./guest-state.ts";
import type { JournalEntry } from "./journal.ts";
import { Machine } from "./machine.ts";

const SOON = { timeout: 5_000 };
const agents: Agent[] = [];

/** Says that it has thawed its guest once it `answers`. */
class Agent {
  asked = 0;
  answers = false;

  async resumed() {
    this.asked++;
    if (!this.answers) throw new Error("no answer");
    return { reseeded: true, health: { generation: GENERATION } };
  }
}

// Ends what goes on asking.
afterEach(() => {
  for (const agent of agents.splice(0)) agent.answers = true;
});

function makeMachine(): { machine: Machine; agent: Agent } {
  const agent = new Agent();
  agents.push(agent);
  const machine = new Machine({
    entry: { machine_id: "m-1", state: "running", slot: 1 } as JournalEntry,
    process: identify(process.pid) as NonNullable<ReturnType<typeof identify>>,
    qmp: { onEvent() {}, execute: async () => ({}) } as unknown as Qmp,
    agent: agent as unknown as AgentClient,
  });
  return { machine, agent };
}

it("an agent that does not thaw is asked once a second, however many captures have failed, until it does", async () => {
  const { machine, agent } = makeMachine();
  for (let captures = 0; captures < 20; captures++) await letGo(machine);
  expect(agent.asked).toBe(20);
  await sleep(2_500);
  expect(agent.asked).toBeGreaterThan(20);
  expect(agent.asked).toBeLessThanOrEqual(22);
  agent.answers = true;
  await expect.poll(() => machine.isThawing, SOON).toBe(false);
  const { asked } = agent;
  await sleep(1_200);
  expect(agent.asked).toBe(asked);
});

it("what a capture froze is not thawed before the capture is over, and then it is", async () => {
  const { machine, agent } = makeMachine();
  await letGo(machine);
  const capture = Promise.withResolvers<void>();
  const done = machine.exclusive(() => capture.promise);
  await sleep(2_000);
  expect(agent.asked).toBe(1);
  capture.resolve();
  await done;
  await expect.poll(() => agent.asked, SOON).toBeGreaterThan(1);
});
