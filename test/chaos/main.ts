/**
 * Chaos: kill -9 of the node daemon and of control, now and then of both or of the database, at random instants and at
 * each named crash point, under a mixed load of creates, execs, pauses, wakes, forks, checkpoints, restores, templates,
 * starts from both, and the ends of all of these. Most kills wait until the killed process is back at work. After every
 * batch of kills the load rests, and an oracle compares the acknowledged results with the real state.
 *
 *   npm run chaos -- [--kills 200] [--batch 10] [--seed 7]     random kills
 *   npm run chaos -- --points                                  each named crash point once
 *   npm run chaos -- --at copy.begin,copy.done                 these crash points
 *   npm run chaos -- --histories 200                           no kills: random lives of sessions, each step a success
 *
 * Kills only the service that it starts itself. Ends with exit code 1 at the first finding.
 */
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { raiseCeiling } from "../support/database.ts";
import { postgresPid, type ServiceFacts, servicePid, startService } from "../support/service.ts";
import { Api } from "./api.ts";
import { CRASH_POINTS, DEATHS_BEFORE, POINTS_OF_LOAD } from "./crash-points.ts";
import { Load } from "./load.ts";
import { verify } from "./oracle.ts";
import { randomFrom } from "./random.ts";

const { values } = parseArgs({
  options: {
    kills: { type: "string", default: "200" },
    batch: { type: "string", default: "10" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    histories: { type: "string" },
    points: { type: "boolean", default: false },
    at: { type: "string" },
  },
});
/** Limit of sessions: the oracle wakes every session that exists. */
const CEILING = 100;
const AT_ONCE = 3;
const STEPS = 12;
/** Within this time the load must continue after a kill. */
const BACK_MS = 60_000;
const LONGEST_WAIT_MS = 2_500;
/** Processes that are killed together. */
const VICTIMS = [["node"], ["control"], ["node", "control"]] as const;
type Victim = (typeof VICTIMS)[number][number];
const DATABASE_EVERY = 10;
const EARLY_EVERY = 4;
const random = randomFrom(Number(values.seed));
console.log(`seed ${values.seed}`);

if (values.histories) await undisturbed(Number(values.histories));
else if (values.points || values.at) for (const point of pointsToVisit()) await crashAt(point);
else await randomKills(Number(values.kills), Number(values.batch));

function pointsToVisit() {
  const wanted = values.at?.split(",");
  const unknown = wanted?.filter((name) => !CRASH_POINTS.some((point) => point === name)) ?? [];
  if (unknown.length > 0) throw new Error(`--at: no crash points ${unknown}; they are ${CRASH_POINTS}`);
  return wanted ? CRASH_POINTS.filter((point) => wanted.includes(point)) : POINTS_OF_LOAD;
}

async function undisturbed(histories: number): Promise<void> {
  await underLoad({}, async ({ facts, api, load }) => {
    for (let done = 0; done < histories; done += AT_ONCE) {
      await Promise.all(Array.from({ length: AT_ONCE }, () => load.history(STEPS)));
      console.log(`${done + AT_ONCE} histories: ${await verify(facts, api, load)}`);
      await load.clear();
    }
  });
}

async function randomKills(kills: number, batch: number): Promise<void> {
  await underLoad({}, async ({ facts, api, load }) => {
    for (let done = 0; done < kills; ) {
      load.start();
      for (let i = 0; i < batch && done < kills; ) {
        // Most kills find the service at work, some find it coming back from the last kill.
        if (random.below(EARLY_EVERY) > 0) await untilLoadContinues(load);
        await sleep(random.below(LONGEST_WAIT_MS));
        const pids = running(facts, random.below(DATABASE_EVERY) === 0 ? ["database"] : random.pick(VICTIMS));
        if (pids.filter(kill).length === 0) continue;
        i++;
        done++;
      }
      await untilLoadContinues(load);
      await load.rest();
      const seen = await verify(facts, api, load);
      console.log(`${done} kills: ${seen}`);
    }
  });
}

/** Pids; a process that is being restarted has none. */
function running(facts: ServiceFacts, names: readonly (Victim | "database")[]): number[] {
  return names.flatMap((name) => {
    try {
      return [name === "database" ? postgresPid(facts) : servicePid(facts, name)];
    } catch {
      return [];
    }
  });
}

/** False when the process has just ended by itself, as the victim of the last kill may. */
function kill(pid: number): boolean {
  try {
    return process.kill(pid, "SIGKILL");
  } catch {
    return false;
  }
}

/** Waits until a command that was sent from now on was executed: node, control and the database work. */
async function untilLoadContinues(load: Load): Promise<void> {
  const asked = performance.now();
  while (load.markedAt < asked) {
    if (performance.now() - asked > BACK_MS)
      throw new Error(`no command was carried out in the ${BACK_MS / 1000} s after a kill`);
    await sleep(20);
  }
}

/** One run of the whole mix with the point armed in both processes; the process that reaches it first dies. */
async function crashAt(point: (typeof CRASH_POINTS)[number]): Promise<void> {
  const points = [DEATHS_BEFORE[point], point].filter((name) => name !== undefined);
  await underLoad({ VIV_CRASH_AT: points.join(",") }, async ({ facts, api, load }) => {
    await load.each();
    const seen = await verify(facts, api, load);
    console.log(`${point}: ${api.hasCrashed(point) ? "fired" : "NOT REACHED"}; ${seen}`);
    if (!api.hasCrashed(point)) process.exitCode = 1;
  });
}

interface Underway {
  facts: ServiceFacts;
  api: Api;
  load: Load;
}

/** A service of its own, stopped and deleted at the end; findings of `work` are printed, and fail the run. */
async function underLoad(
  env: Record<string, string>,
  work: (underway: Underway) => Promise<void>,
): Promise<void> {
  const service = await startService({ env });
  const { facts } = service;
  const api = new Api(facts);
  await raiseCeiling(facts, CEILING);
  const load = new Load(api, random);
  try {
    await work({ facts, api, load });
  } catch (error) {
    console.error(`FOUND: ${(error as Error).stack}`);
    process.exitCode = 1;
  } finally {
    await load.rest();
    await api.deleteAll();
    await service.stop();
  }
}
