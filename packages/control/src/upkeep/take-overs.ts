import { pauseMachine } from "../moves/pause-machine.ts";
import { settleMachines } from "../moves/settle.ts";
import { wakeMachine } from "../moves/wake.ts";
import type { TakeOvers } from "../operations/take-over.ts";
import { rollBackFork } from "../saved-state/fork.ts";
import { rollBackRestore } from "../saved-state/restore.ts";
import { discardSnapshot } from "../saved-state/snapshot-steps.ts";
import type { UpkeepDeps } from "./deps.ts";

/** Pause, wake and settle are rolled forward. Restore, fork, checkpoint and template are rolled back. */
export const TAKE_OVERS: TakeOvers<UpkeepDeps> = {
  pause: pauseMachine,
  wake: wakeMachine,
  settle: settleMachines,
  restore: rollBackRestore,
  fork: rollBackFork,
  checkpoint: discardSnapshot,
  save_template: discardSnapshot,
};
