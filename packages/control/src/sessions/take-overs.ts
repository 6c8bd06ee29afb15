import { forgetState, type SaveStateDeps } from "../checkpoints/save-state.ts";
import type { TakeOvers } from "../operations/take-over.ts";
import { type ForkDeps, takeBackFork } from "./fork.ts";
import { type PauseDeps, pauseMachine } from "./pause-machine.ts";
import { type RestoreDeps, takeBackRestore } from "./restore.ts";
import { type SettleDeps, settleMachines } from "./settle.ts";
import { type WakeDeps, wakeMachine } from "./wake.ts";

export type TakeOverDeps = PauseDeps & WakeDeps & SettleDeps & ForkDeps & RestoreDeps & SaveStateDeps;

/** Rolled forward where the caller was promised nothing else, taken back where only the caller wanted it. */
export const TAKE_OVERS: TakeOvers<TakeOverDeps> = {
  pause: pauseMachine,
  wake: wakeMachine,
  settle: settleMachines,
  restore: takeBackRestore,
  fork: takeBackFork,
  checkpoint: forgetState,
  save_template: forgetState,
};
