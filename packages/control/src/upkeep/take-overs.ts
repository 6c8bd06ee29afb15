import { type PauseDeps, pauseMachine } from "../moves/pause-machine.ts";
import { type SettleDeps, settleMachines } from "../moves/settle.ts";
import { type WakeDeps, wakeMachine } from "../moves/wake.ts";
import type { TakeOvers } from "../operations/take-over.ts";
import { type ForkDeps, takeBackFork } from "../saved-state/fork.ts";
import { type RestoreDeps, takeBackRestore } from "../saved-state/restore.ts";
import { forgetState, type SaveStateDeps } from "../saved-state/save-state.ts";

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
