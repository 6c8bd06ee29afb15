import { pauseMachine } from "../moves/pause-machine.ts";
import { settleMachines } from "../moves/settle.ts";
import { wakeMachine } from "../moves/wake.ts";
import type { TakeOvers } from "../operations/take-over.ts";
import { takeBackFork } from "../saved-state/fork.ts";
import { takeBackRestore } from "../saved-state/restore.ts";
import { forgetState } from "../saved-state/save-state.ts";
import type { UpkeepDeps } from "./deps.ts";

/** Rolled forward where the caller was promised nothing else, taken back where only the caller wanted it. */
export const TAKE_OVERS: TakeOvers<UpkeepDeps> = {
  pause: pauseMachine,
  wake: wakeMachine,
  settle: settleMachines,
  restore: takeBackRestore,
  fork: takeBackFork,
  checkpoint: forgetState,
  save_template: forgetState,
};
