import { GENERATION } from "@vivarium/contract/guest";
import { sleep } from "@vivarium/kit/clock";
import { identify } from "@vivarium/kit/process-identity";
import { afterEach, describe, expect, it, onTestFinished } from "vitest";
import { type ScriptedAgent, startScriptedAgent } from "../../test-support/scripted-agent.ts";
import { AgentClient } from "../guest/client.ts";
import type { Qmp } from "../qemu/qmp.ts";
import { handshake, thawAndContinue } from "./handshake.ts";
import type { JournalEntry } from "./journal.ts";
import { Machine } from "./machine.ts";

const agents: Agent[] = [];

/** Confirms the thaw once `answers` is set. */
class Agent {
  asked = 0;
  answers = false;
  generation = GENERATION;

  async resumed() {
    this.asked++;
    if (!this.answers) throw new Error("no answer");
    return { reseeded: true, health: { generation: this.generation } };
  }
}

// Ends the retry loop.
afterEach(() => {
  for (const agent of agents.splice(0)) agent.answers = true;
});

function makeMachine(): { machine: Machine; agent: Agent } {
  const agent = new Agent();
  agents.push(agent);
  const machine = new Machine({
    entry: { machine_id: "m-1", state: "running", slot: 1, spec: {} } as JournalEntry,
    process: identify(process.pid) as NonNullable<ReturnType<typeof identify>>,
    qmp: { onEvent() {}, execute: async () => ({}) } as unknown as Qmp,
    agent: agent as unknown as AgentClient,
  });
  return { machine, agent };
}

it("an agent that does not thaw is asked once a second, however many captures have failed, until it does", async () => {
  const { machine, agent } = makeMachine();
  const began = performance.now();
  for (let captures = 0; captures < 20; captures++) await thawAndContinue(machine);
  expect(agent.asked).toBe(20);
  await expect.poll(() => agent.asked).toBeGreaterThan(21);
  expect(agent.asked - 20).toBeLessThanOrEqual(Math.ceil((performance.now() - began) / 1_000));
  agent.answers = true;
  await expect.poll(() => machine.isThawing).toBe(false);
  const { asked } = agent;
  await sleep(1_200);
  expect(agent.asked).toBe(asked);
});

it("a guest that a capture froze is thawed only when the capture is over", async () => {
  const { machine, agent } = makeMachine();
  await thawAndContinue(machine);
  const capture = Promise.withResolvers<void>();
  const done = machine.queue.run(() => capture.promise);
  await sleep(2_000);
  expect(agent.asked).toBe(1);
  capture.resolve();
  await done;
  await expect.poll(() => agent.asked).toBeGreaterThan(1);
});

it("an agent of another generation, found running after an update of the node, is asked to thaw once", async () => {
  const { machine, agent } = makeMachine();
  agent.answers = true;
  agent.generation = GENERATION - 1;
  await thawAndContinue(machine);
  await sleep(1_200);
  expect(agent.asked).toBe(1);
});

describe("the handshake", () => {
  const SNAPSHOT = `chk_${"a".repeat(21)}`;
  const ACK = {
    reseeded: true,
    generation: 2,
    health: { generation: GENERATION, version: "1", uptime_ms: 1 },
  };
  const refusal = { code: "internal", message: "could not reseed: Operation not permitted" };

  /** An agent that answers every request with `answer`, and records the requests in `asked`. */
  async function machineOf(
    spec: object,
    { status, body }: { status: number; body: object },
    life: { process?: Machine["process"]; shutdown?: string } = {},
  ) {
    const asked: Record<string, unknown>[] = [];
    const scripted: ScriptedAgent = await startScriptedAgent({
      handle: async (request, response) => {
        asked.push(JSON.parse(Buffer.concat(await request.toArray()).toString()));
        response.writeHead(status).end(JSON.stringify(body));
      },
    });
    const agent = new AgentClient(scripted.socketPath);
    onTestFinished(async () => {
      agent.close();
      await scripted.close();
    });
    const machine = new Machine({
      entry: {
        machine_id: "m-1",
        state: "starting",
        slot: 1,
        spec: { hostname: "m", ...spec },
      } as JournalEntry,
      process: life.process ?? (identify(process.pid) as Machine["process"]),
      qmp: {
        closed: life.process ? Promise.resolve() : new Promise(() => {}),
        onEvent: (listener: (event: string, data: object) => void) =>
          life.shutdown && listener("SHUTDOWN", { reason: life.shutdown }),
      } as unknown as Qmp,
      agent,
    });
    return { machine, asked, hush: () => scripted.close() };
  }

  it("leaves the guest frozen if the machine is to be stopped, and does not mention freezing otherwise", async () => {
    const answer = { status: 200, body: ACK };
    const held = await machineOf({ snapshot_id: SNAPSHOT, hold: true }, answer);
    await handshake(held.machine);
    expect(held.asked).toMatchObject([{ stay_frozen: true, identity: { hostname: "m" } }]);
    const plain = await machineOf({ snapshot_id: SNAPSHOT, resume: true }, answer);
    await handshake(plain.machine);
    expect(Object.keys(plain.asked[0] ?? {}).toSorted()).toEqual(["ca", "entropy", "wall_clock_ns"]);
  });

  it("gives the operator's settings to a new session, and leaves those of a session that continues", async () => {
    const answer = { status: 200, body: ACK };
    const settings = { variables: { A: "1" }, apt_sources: [] };
    const fresh = await machineOf({ snapshot_id: SNAPSHOT }, answer);
    await handshake(fresh.machine, { settings });
    expect(fresh.asked).toMatchObject([{ identity: { hostname: "m", settings } }]);
    const woken = await machineOf({ snapshot_id: SNAPSHOT, resume: true }, answer);
    await handshake(woken.machine, { settings });
    expect(JSON.stringify(woken.asked)).not.toContain("variables");
  });

  const ca = { certificate_pem: "-----BEGIN CERTIFICATE-----", subject_hash: "0123abcd" };

  it("sends the authority of a session at every start, and takes an earlier one away without it", async () => {
    const answer = { status: 200, body: { ...ACK, ca_trusted: true } };
    for (const spec of [{}, { snapshot_id: SNAPSHOT, resume: true }, { snapshot_id: SNAPSHOT, hold: true }]) {
      const withOne = await machineOf({ ...spec, ca }, answer);
      await handshake(withOne.machine);
      expect(withOne.asked).toMatchObject([{ ca }]);
      const without = await machineOf(spec, { status: 200, body: ACK });
      await handshake(without.machine);
      expect(without.asked).toMatchObject([{ ca: null }]);
    }
  });

  it("does not mention an authority to a machine that continues after a capture", async () => {
    const { machine, asked } = await machineOf({ ca }, { status: 200, body: ACK });
    machine.qmp.execute = async () => ({}) as never;
    await thawAndContinue(machine);
    expect(Object.keys(asked[0] ?? {})).not.toContain("ca");
  });

  it("fails as unfit if the agent does not confirm that it trusts the session's authority", async () => {
    for (const body of [ACK, { ...ACK, ca_trusted: false }]) {
      const saved = await machineOf({ snapshot_id: SNAPSHOT, ca }, { status: 200, body });
      await expect(handshake(saved.machine)).rejects.toMatchObject({
        code: "guest_unfit",
        message: expect.stringContaining("of an older version of Vivarium and cannot have Connections"),
      });
    }
    // A baseline is the operator's, who bakes it again.
    const fresh = await machineOf({ ca }, { status: 200, body: ACK });
    await expect(handshake(fresh.machine)).rejects.toThrow(/baked again/);
  });

  it("wakes a session whose guest made its own certificates unwritable, unless its agent does not say so", async () => {
    const woken = { snapshot_id: SNAPSHOT, resume: true, ca };
    const lacking = await machineOf(woken, { status: 200, body: { ...ACK, ca_trusted: false } });
    await handshake(lacking.machine);
    const silent = await machineOf(woken, { status: 200, body: ACK });
    await expect(handshake(silent.machine)).rejects.toMatchObject({ code: "guest_unfit" });
  });

  it("fails as unfit, with the reason, if the guest of a saved state refuses or sends nonsense", async () => {
    const refusing = await machineOf({ snapshot_id: SNAPSHOT, hold: true }, { status: 500, body: refusal });
    await expect(handshake(refusing.machine)).rejects.toMatchObject({
      code: "guest_unfit",
      message: expect.stringContaining("could not reseed: Operation not permitted"),
    });
    const lying = await machineOf(
      { snapshot_id: SNAPSHOT },
      { status: 200, body: { ...ACK, reseeded: false } },
    );
    await expect(handshake(lying.machine)).rejects.toMatchObject({ code: "guest_unfit" });
  });

  it("fails as unfit, with the reason, if the agent was saved by a version of another generation", async () => {
    const body = { ...ACK, health: { ...ACK.health, generation: GENERATION - 1 } };
    const { machine } = await machineOf({ snapshot_id: SNAPSHOT }, { status: 200, body });
    await expect(handshake(machine)).rejects.toMatchObject({
      code: "guest_unfit",
      message: expect.stringMatching(`speaks generation ${GENERATION - 1}, this node speaks ${GENERATION}.`),
    });
  });

  it("does not fail as unfit if an agent that answered when it was saved is silent: its host may be busy", async () => {
    const { machine, hush } = await machineOf({ snapshot_id: SNAPSHOT }, { status: 200, body: ACK });
    await hush();
    await expect(handshake(machine)).rejects.toMatchObject({ code: "agent_unavailable" });
    await expect(handshake(machine, { isUnfrozen: true })).rejects.toMatchObject({ code: "guest_unfit" });
  });

  it("does not fail as unfit if the machine waits for free disk", async () => {
    const { machine } = await machineOf({ snapshot_id: SNAPSHOT }, { status: 500, body: refusal });
    Object.defineProperty(machine, "isOutOfSpace", { value: true });
    await expect(handshake(machine)).rejects.toMatchObject({ code: "disk_pressure" });
  });

  it("does not fail as unfit if the machine comes from a baseline, or if its process was killed", async () => {
    const answer = { status: 500, body: refusal };
    const fresh = await machineOf({}, answer);
    await expect(handshake(fresh.machine)).rejects.toMatchObject({ code: "internal" });
    const gone = { pid: process.pid, startTicks: "another" };
    const killed = await machineOf({ snapshot_id: SNAPSHOT }, answer, { process: gone });
    await expect(handshake(killed.machine)).rejects.toMatchObject({ code: "internal" });
    const crashed = await machineOf({ snapshot_id: SNAPSHOT }, answer, {
      process: gone,
      shutdown: "guest-panic",
    });
    await expect(handshake(crashed.machine)).rejects.toMatchObject({ code: "guest_unfit" });
  });
});
