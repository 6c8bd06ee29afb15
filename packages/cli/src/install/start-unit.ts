/** Starts a unit, or starts it again, and shows its progress until it answers. */
import { sleep } from "@vivarium/kit/clock";
import { CliError } from "../cli-error.ts";
import type { Terminal } from "../terminal.ts";
import { requireSystemctl, showJournal, type UnitState, unitState } from "./systemd.ts";

const POLL_MS = 500;
/** More than the unit's own limit on its start. */
const LIMIT_MS = 3_700_000;
/** Failures in a row after which nobody waits longer. An update has a version that served, so it gives up sooner. */
const HOPELESS = { restart: 3, start: 2 };

/** `start`: one that runs already is left so. */
export async function startUnit(
  name: string,
  terminal: Terminal,
  how: "start" | "restart" = "restart",
): Promise<void> {
  const stopShowing = showJournal(name, terminal);
  try {
    await requireSystemctl("reset-failed", `${name}.service`).catch(() => {});
    await requireSystemctl(how, "--no-block", `${name}.service`);
    const deadline = performance.now() + LIMIT_MS;
    let verdict: Verdict = "wait";
    let state = await unitState(name);
    while (verdict === "wait") {
      await sleep(POLL_MS);
      state = await unitState(name);
      verdict = performance.now() > deadline ? "failed" : judge({ ...state, hopeless: HOPELESS[how] });
    }
    if (verdict === "failed") throw notStarted(name, state);
  } finally {
    stopShowing();
  }
}

export type Verdict = "wait" | "started" | "failed";

export function judge({
  active,
  restarts,
  hasJob,
  hopeless = HOPELESS.restart,
}: Pick<UnitState, "active" | "restarts" | "hasJob"> & { hopeless?: number }): Verdict {
  // A start may wait for other units, and a restart for the stop.
  if (hasJob && restarts < hopeless) return "wait";
  if (active === "active") return "started";
  if (active === "failed" || active === "inactive" || restarts >= hopeless) return "failed";
  return "wait";
}

function notStarted(name: string, { active, result }: UnitState): CliError {
  return new CliError(`${name}.service did not start: it is ${active} (${result})`, {
    hint: `Its last words: journalctl -u ${name} -n 50. What this host lacks: viv doctor. systemd goes on trying; systemctl stop ${name} ends that.`,
  });
}
