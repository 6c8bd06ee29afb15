/**
 * Random histories of sessions against a model: every verb, refusals of the node, ceilings, simultaneous verbs,
 * operations whose process died, and passing time. Each session's guest counts its commands, so that a lost, additional
 * or wrong state shows in the next answer. A failure prints the seed and the shortest failing history;
 * VIV_HISTORIES_SEED sets the seed.
 */

import { Refusal } from "@vivarium/contract/test-support/node";
import { randomId } from "@vivarium/kit/id";
import { size } from "@vivarium/kit/test-support/sizes";
import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Answer, type Control, eventually, startControl } from "../../test-support/control.ts";
import {
  act,
  BIRTH,
  elapse,
  type Obstacle,
  type Settings,
  type Verb,
  type World,
} from "../../test-support/history-model.ts";

const HISTORIES = Number(process.env.VIV_HISTORIES ?? size({ ci: 150, full: 10_000 }));
const SEED = Number(process.env.VIV_HISTORIES_SEED ?? Math.floor(Math.random() * 2 ** 31));
/** Parallel histories, each of its own organisation, so that one uses the time in which another waits. */
const LANES = 12;
const MINUTE_MS = 60_000;

let control: Control;
beforeAll(async () => {
  control = await startControl();
  watchNode();
});
afterAll(() => control.close());

/** The command counter of every machine and snapshot. */
const memory = new Map<string, number>();
/** Current obstacles, by session. */
const obstacles = new Map<string, Obstacle>();
const violations: string[] = [];
const sessionOf = (machineId: string) => machineId.split("-", 1)[0] ?? "";

function watchNode(): void {
  const { node } = control;
  const recall = (id: string) => memory.get(id) ?? 0;
  node.onStart = (id, spec) => {
    if (obstacles.get(sessionOf(id)) === "no machine") throw new Refusal("disk_pressure");
    if (!spec.hold) expectAlone(id);
    if (!node.machines.has(id)) memory.set(id, spec.snapshot_id ? recall(spec.snapshot_id) : 0);
  };
  node.onContinue = expectAlone;
  node.onSnapshot = (id, spec) => {
    const source = "machine_id" in spec ? spec.machine_id : spec.snapshot_id;
    if (obstacles.get(sessionOf(source)) === "no capture") throw new Refusal("capture_failed");
    if (!node.snapshots.has(id)) memory.set(id, recall(source));
  };
  node.onExec = (_call, output) => {
    const id = node.execs.pop()?.machineId ?? "";
    memory.set(id, recall(id) + 1);
    const running = output();
    running.stdout(String(recall(id)));
    running.exit();
  };
}

/** Records a violation if two machines of one session run. */
function expectAlone(machineId: string): void {
  for (const [id, { state }] of control.node.machines) {
    const isOther = id !== machineId && sessionOf(id) === sessionOf(machineId);
    if (isOther && state === "running") violations.push(`${machineId} runs beside ${id}`);
  }
}

type Step =
  | { kind: "verb"; verb: Verb; obstacle?: Obstacle }
  | { kind: "pair"; verbs: [Verb, Verb] }
  | { kind: "time"; minutes: number }
  | { kind: "death" };

const wakeIn = fc.constantFrom(null, 30.25, 200.25);
const pause = fc.record({ do: fc.constant("pause" as const), wakeIn });
const simple = (...names: Exclude<Verb["do"], "pause">[]) => fc.record({ do: fc.constantFrom(...names) });
const verb: fc.Arbitrary<Verb> = fc.oneof(
  { weight: 4, arbitrary: pause },
  { weight: 8, arbitrary: simple("resume", "exec", "exec") },
  { weight: 3, arbitrary: simple("checkpoint", "restore") },
  { weight: 1, arbitrary: simple("destroy") },
);
/** A restore names its checkpoint in the request, so it is not paired with the creation of one. */
const pair = fc
  .tuple(fc.oneof(pause, simple("resume", "exec", "destroy", "checkpoint")), verb)
  .filter(([one, other]) => one.do !== "checkpoint" || other.do !== "restore");
const OBSTACLES = ["no machine", "no capture", "ceiling"] as const;
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 12, arbitrary: fc.record({ kind: fc.constant("verb" as const), verb }) },
  {
    weight: 3,
    arbitrary: fc.record({
      kind: fc.constant("verb" as const),
      verb,
      obstacle: fc.constantFrom(...OBSTACLES),
    }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("pair" as const), verbs: pair }) },
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant("time" as const),
      minutes: fc.constantFrom(1, 9, 11, 31, 61, 121, 1441),
    }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("death" as const) }) },
);
const history = fc.record({
  settings: fc.record({
    idle: fc.constantFrom(null, 10.5),
    life: fc.constantFrom(null, null, 120.5),
    ttl: fc.constantFrom(60.5, 1000.5, 43_200),
  }),
  steps: fc.array(step, { minLength: 1, maxLength: 9 }),
});

/** One caller: an organisation with a key, one session at a time. */
class Lane {
  readonly #key: string;
  readonly #orgId: string;
  #id = "";
  #checkpoints: string[] = [];
  #world = BIRTH;

  constructor(orgId: string, key: string) {
    this.#orgId = orgId;
    this.#key = key;
  }

  async live(settings: Settings, steps: Step[]): Promise<void> {
    await this.#begin(settings);
    try {
      for (const one of steps) await this.#take(one, settings);
    } finally {
      await this.#end();
    }
    expect(violations.splice(0)).toEqual([]);
  }

  async #begin({ idle, life, ttl }: Settings): Promise<void> {
    const body = {
      ...(idle !== null && { idle_timeout_ms: idle * MINUTE_MS }),
      ...(life !== null && { max_lifetime_ms: life * MINUTE_MS }),
      paused_ttl_ms: ttl * MINUTE_MS,
    };
    this.#id = await control.create(body, this.#key);
    this.#world = BIRTH;
    this.#checkpoints = [];
    // A resume waits until the session is live.
    expect((await this.#ask({ do: "resume" })).status).toBe(200);
  }

  async #take(one: Step, settings: Settings): Promise<void> {
    switch (one.kind) {
      case "verb":
        return await this.#act(one.verb, one.obstacle);
      case "pair":
        return await this.#actTogether(one.verbs);
      case "time":
        return await this.#elapse(settings, one.minutes);
      case "death":
        return await this.#outliveAProcess();
    }
  }

  async #act(verb: Verb, obstacle?: Obstacle): Promise<void> {
    const expected = act(this.#world, verb, obstacle);
    if (obstacle) await this.#put(obstacle);
    const answer = await this.#ask(verb);
    if (obstacle) await this.#remove(obstacle);
    expect([verb.do, answer.status], answer.text).toEqual([verb.do, expected.status]);
    this.#world = expected.world;
    if (answer.status === 200) this.#checkAnswer(verb, answer);
    else await this.#checkState();
  }

  /** The outcome of two simultaneous verbs must be that of one order or the other. */
  async #actTogether([first, second]: [Verb, Verb]): Promise<void> {
    const answers = await Promise.all([this.#ask(first), this.#ask(second)]);
    const statuses = answers.map(({ status }) => status);
    const orders = [inOrder(this.#world, first, second), inOrder(this.#world, second, first, true)];
    const isDestroyed = [first, second].some((one) => one.do === "destroy");
    const possible = orders.filter(({ expected }) =>
      // A destroy interrupts the other verb, whose answer may be that the session has ended.
      expected.every(
        (status, n) => status === statuses[n] || (isDestroyed && [404, 410].includes(statuses[n] ?? 0)),
      ),
    );
    const found = await this.#read();
    const remembered = this.#remembered();
    const fitting = possible.find(
      ({ world }) => isAs(found, world) && (world.state !== "live" || remembered === world.counter),
    );
    const said = `${statuses}, memory ${remembered} and ${JSON.stringify(found.body)}`;
    expect(
      fitting,
      `${first.do} with ${second.do} on ${JSON.stringify(this.#world)} gave ${said}`,
    ).toBeDefined();
    if (!fitting) return;
    this.#world = fitting.world;
    // The counter in the checkpoint shows which instant it captured.
    const newest = this.#checkpoints.at(-1);
    if (newest && this.#world.saved !== null) this.#world.saved = memory.get(newest) ?? -1;
  }

  /** Moves all times in the row back, which is the same as moving the clock forward. */
  async #elapse(settings: Settings, minutes: number): Promise<void> {
    // Flushes activity first, because it belongs to the time before.
    await control.app.checkDeadlines();
    await control.sql.query(SHIFT, [this.#id, minutes]);
    this.#world = elapse(this.#world, settings, minutes);
    await control.app.checkDeadlines();
    await this.#untilAsExpected();
  }

  /** A process dies after it wrote the intent, and another one takes the operation over. */
  async #outliveAProcess(): Promise<void> {
    const { state } = this.#world;
    if (state !== "live" && state !== "paused") return;
    const [op, input] =
      state === "live"
        ? ["pause", { snapshot_id: `pau_${randomId()}`, event: "pause" }]
        : ["wake", { event: "resume" }];
    const { rowCount } = await control.sql.query(
      `update sessions set op = $2, op_id = 'of-the-dead', op_input = $3, op_claimed_until = now() - interval '1 s'
       where id = $1 and op is null`,
      [this.#id, op, JSON.stringify(input)],
    );
    if (rowCount === 0) return;
    this.#world = act(this.#world, state === "live" ? { do: "pause", wakeIn: null } : { do: "resume" }).world;
    await this.#untilAsExpected();
  }

  async #end(): Promise<void> {
    for (const one of OBSTACLES) await this.#remove(one);
    await this.#ask({ do: "destroy" });
    for (const id of this.#checkpoints) await this.#request(`DELETE /v1/checkpoints/${id}`);
    await eventually(() => {
      const machines = [...control.node.machines.keys()].filter((id) => sessionOf(id) === this.#id);
      const snapshots = [...control.node.snapshots.values()].filter(
        ({ spec }) => spec && "machine_id" in spec && sessionOf(spec.machine_id) === this.#id,
      );
      expect([machines, snapshots]).toEqual([[], []]);
    });
  }

  async #put(obstacle: Obstacle): Promise<void> {
    if (obstacle === "ceiling") await this.#setCeiling(0);
    else obstacles.set(this.#id, obstacle);
  }

  async #remove(obstacle: Obstacle): Promise<void> {
    if (obstacle === "ceiling") await this.#setCeiling(10);
    else obstacles.delete(this.#id);
  }

  async #setCeiling(sessions: number): Promise<void> {
    await control.sql.query("update orgs set concurrent_sessions = $2 where id = $1", [
      this.#orgId,
      sessions,
    ]);
  }

  async #ask(verb: Verb): Promise<Answer> {
    const path = `/v1/sessions/${this.#id}`;
    switch (verb.do) {
      case "destroy":
        return await this.#request(`DELETE ${path}`);
      case "exec":
        return await this.#request(`POST ${path}/exec`, { command: ["count"] });
      case "pause":
        return await this.#request(`POST ${path}/pause`, { wake_at: await this.#later(verb.wakeIn) });
      case "restore":
        return await this.#request(`POST ${path}/restore`, {
          checkpoint_id: this.#checkpoints.at(-1) ?? "none",
        });
      case "checkpoint":
        return await this.#saveCheckpoint(path);
      default:
        return await this.#request(`POST ${path}/${verb.do}`);
    }
  }

  /** A restore uses the newest checkpoint. */
  async #saveCheckpoint(path: string): Promise<Answer> {
    const answer = await this.#request(`POST ${path}/checkpoints`);
    if (answer.status === 200) this.#checkpoints.push(answer.body.checkpoint_id as string);
    return answer;
  }

  async #later(minutes: number | null): Promise<string | null> {
    return minutes === null ? null : new Date(Date.now() + minutes * MINUTE_MS).toISOString();
  }

  #request(call: string, body?: object): Promise<Answer> {
    return control.ask(call, { key: this.#key, body });
  }

  /** The row, to explain a failure. */
  async #row(): Promise<unknown> {
    const found = await control.sql.query("select *, service_now() as now from sessions where id = $1", [
      this.#id,
    ]);
    return found.rows[0];
  }

  #read(): Promise<Answer> {
    return this.#request(`GET /v1/sessions/${this.#id}`);
  }

  #checkAnswer(verb: Verb, answer: Answer): void {
    if (verb.do === "exec") expect(answer.body.stdout).toBe(String(this.#world.counter));
    else if (verb.do === "checkpoint")
      expect(memory.get(answer.body.checkpoint_id)).toBe(this.#world.counter);
    else expect(isAs(answer, this.#world), `${answer.text} is not ${JSON.stringify(this.#world)}`).toBe(true);
    if (verb.do === "restore") expect(this.#remembered()).toBe(this.#world.counter);
  }

  async #checkState(): Promise<void> {
    const found = await this.#read();
    expect(isAs(found, this.#world), `${found.text} is not ${JSON.stringify(this.#world)}`).toBe(true);
  }

  async #untilAsExpected(): Promise<void> {
    await eventually(() => this.#checkState()).catch(async (error: Error) => {
      error.message += `\nin the row: ${JSON.stringify(await this.#row())}`;
      throw error;
    });
    if (this.#world.state === "live") expect(this.#remembered()).toBe(this.#world.counter);
  }

  /** The counter of the session's machine. */
  #remembered(): number | undefined {
    const running = [...control.node.machines.values()].filter(
      ({ machine_id, state }) => sessionOf(machine_id) === this.#id && state === "running",
    );
    return running.length === 1 ? memory.get(running[0]?.machine_id ?? "") : undefined;
  }
}

const SHIFTED = [
  ...["created_at", "last_active_at", "state_changed_at", "live_since", "paused_at", "resumed_at"],
  ...["wake_at", "wake_retry_at", "wake_drop_at", "due_at"],
];
const SHIFT = `update sessions set ${SHIFTED.map((column) => `${column} = ${column} - make_interval(mins => $2)`)}
  where id = $1 and state <> 'destroyed'`;

/** The expected statuses, in the order of the requests, and the world afterwards. */
function inOrder(world: World, one: Verb, other: Verb, isSwapped = false) {
  const first = act(world, one);
  const second = act(first.world, other);
  const expected = isSwapped ? [second.status, first.status] : [first.status, second.status];
  return { expected, world: { ...second.world } };
}

const SHOWN = { live: "live", paused: "paused", expired: "lifetime_expired" } as const;

function isAs({ status, body }: Answer, world: World): boolean {
  if (world.state === "gone") return status === 404;
  const wakeIn = world.state === "paused" ? world.wakeIn : null;
  // Requested wakes are hours apart, and a history takes seconds.
  const isSameWake =
    wakeIn === null
      ? body.wake_at === undefined
      : Math.abs(Date.parse(body.wake_at) - Date.now() - wakeIn * MINUTE_MS) < 5 * MINUTE_MS;
  return status === 200 && body.state === SHOWN[world.state] && isSameWake;
}

test(
  `${HISTORIES} random histories match the model (seed ${SEED})`,
  async () => {
    const lanes = await Promise.all(
      Array.from({ length: LANES }, async () => {
        const orgId = `org_${randomId()}`;
        await control.sql.query("insert into orgs (id, name, concurrent_sessions) values ($1, 'lane', 10)", [
          orgId,
        ]);
        return new Lane(orgId, await control.addKey({ orgId }));
      }),
    );
    await Promise.all(
      lanes.map((lane, n) =>
        fc.assert(
          fc.asyncProperty(history, ({ settings, steps }) => lane.live(settings, steps)),
          { seed: SEED + n, numRuns: Math.ceil(HISTORIES / LANES), endOnFailure: false },
        ),
      ),
    );
  },
  30 * MINUTE_MS,
);
