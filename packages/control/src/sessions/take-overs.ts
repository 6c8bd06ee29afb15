import type { TakeOvers } from "../operations/take-over.ts";
import { type PauseDeps, pauseMachine } from "./pause-machine.ts";
import { type SettleDeps, settleMachines } from "./settle.ts";
import { type WakeDeps, wakeMachine } from "./wake.ts";

export type TakeOverDeps = PauseDeps & WakeDeps & SettleDeps;

/** Rolled forward where the caller was promised nothing else, taken back where only the caller wanted it. */
export const TAKE_OVERS: TakeOvers<TakeOverDeps> = {
  pause: pauseMachine,
  wake: wakeMachine,
  settle: settleMachines,
};
