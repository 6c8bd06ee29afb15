/**
 * A model of a session, independent of the control plane: whole minutes instead of instants, a counter instead of a
 * guest's memory, one step at a time. The tests of histories compare the two.
 */

export interface Settings {
  /** Limits in minutes, with a fraction that no sum of steps equals; null: no limit. */
  idle: number | null;
  life: number | null;
  ttl: number;
}

export interface World {
  state: "live" | "paused" | "expired" | "gone";
  /** Minutes since the session was created (`age`), used (`idle`), woken (`live`), paused (`paused`). */
  age: number;
  idle: number;
  live: number;
  paused: number;
  /** Minutes until the scheduled wake. */
  wakeIn: number | null;
  /** The counter in the guest, and in the checkpoint. */
  counter: number;
  saved: number | null;
}

export const BIRTH: World = {
  state: "live",
  age: 0,
  idle: 0,
  live: 0,
  paused: 0,
  wakeIn: null,
  counter: 0,
  saved: null,
};

export type Verb =
  | { do: "pause"; wakeIn: number | null }
  | { do: "resume" | "exec" | "destroy" | "checkpoint" | "restore" };

/** Why a machine cannot be started or captured. */
export type Obstacle = "no machine" | "no capture" | "ceiling";

export interface Outcome {
  world: World;
  status: number;
}

const LIVE_MINUTES = 24 * 60;

export function act(world: World, verb: Verb, obstacle?: Obstacle): Outcome {
  if (verb.do === "destroy" && world.state !== "gone")
    return { world: { ...world, state: "gone" }, status: 204 };
  if (world.state === "gone") return { world, status: 404 };
  if (world.state === "expired") return { world, status: 410 };
  if (verb.do === "restore" && world.saved === null) return { world, status: 404 };
  switch (verb.do) {
    case "pause":
      return pause(world, verb.wakeIn, obstacle);
    case "resume":
      return awake(world, obstacle, (now) => now);
    case "exec":
      return awake(world, obstacle, (now) => ({ ...now, counter: now.counter + 1, idle: 0 }));
    case "checkpoint":
      if (world.state === "live" && obstacle === "no capture") return { world, status: 503 };
      return { world: { ...world, saved: world.counter }, status: 200 };
    case "restore":
      return restore(world, obstacle);
    default:
      throw new Error(`the model knows no ${verb.do}`);
  }
}

function pause(world: World, wakeIn: number | null, obstacle?: Obstacle): Outcome {
  if (world.state === "paused") return { world: { ...world, wakeIn }, status: 200 };
  if (obstacle === "no capture") return { world, status: 503 };
  return { world: { ...world, state: "paused", paused: 0, wakeIn }, status: 200 };
}

function awake(world: World, obstacle: Obstacle | undefined, then: (now: World) => World): Outcome {
  if (world.state === "live") return { world: then(world), status: 200 };
  if (obstacle === "ceiling") return { world, status: 429 };
  if (obstacle === "no machine") return { world, status: 503 };
  return { world: then(wake(world)), status: 200 };
}

function wake(world: World): World {
  return { ...world, state: "live", live: 0, idle: 0, paused: 0, wakeIn: null };
}

function restore(world: World, obstacle?: Obstacle): Outcome {
  if (world.saved === null) return { world, status: 404 };
  if (world.state === "paused" && obstacle === "ceiling") return { world, status: 429 };
  if (obstacle === "no machine") return { world, status: 503 };
  const back = world.state === "paused" ? wake(world) : { ...world, idle: 0 };
  return { world: { ...back, counter: world.saved }, status: 200 };
}

/** Lets time pass without a check of the deadlines, then checks them until none is due. */
export function elapse(world: World, settings: Settings, minutes: number): World {
  let now = {
    ...world,
    age: world.age + minutes,
    idle: world.idle + minutes,
    live: world.live + minutes,
    paused: world.paused + minutes,
    wakeIn: world.wakeIn === null ? null : world.wakeIn - minutes,
  };
  for (;;) {
    const next = due(now, settings);
    if (!next) return now;
    now = next;
  }
}

function due(now: World, { idle, life, ttl }: Settings): World | undefined {
  const isOver = life !== null && now.age >= life;
  const overdueTtl = ttl < 0 ? -1 : now.paused - ttl;
  if (now.state === "live") {
    if (isOver) return { ...now, state: "expired", paused: 0, wakeIn: null };
    if (now.live < LIVE_MINUTES && (idle === null || now.idle < idle)) return undefined;
    return { ...now, state: "paused", paused: 0, wakeIn: null };
  }
  if (now.state === "paused") {
    if (isOver) return { ...now, state: "expired", wakeIn: null };
    const overdueWake = now.wakeIn === null ? -1 : -now.wakeIn;
    if (overdueWake >= 0 && overdueWake >= overdueTtl) return wake(now);
  }
  if ((now.state === "paused" || now.state === "expired") && overdueTtl >= 0)
    return { ...now, state: "gone" };
  return undefined;
}
