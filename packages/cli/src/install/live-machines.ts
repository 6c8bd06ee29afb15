/** Refusals for machines of live sessions whose service does not run, or that outlived the stop of it. */
import { CliError } from "../cli-error.ts";
import { countMachines } from "./slot-remains.ts";

/** Only a service that runs can pause a session or end it: without one the machines would run on, or be killed. */
export async function requireServed(dataDir: string, verb: string): Promise<void> {
  const live = await countMachines(dataDir);
  if (live === 0) return;
  const start = "Start the service first, with systemctl start of its unit or viv up --background";
  throw new CliError(`${sessionsAre(live)} live, and no service runs for ${dataDir} to pause or end them`, {
    hint: `${start}; then repeat viv ${verb}. Nothing was changed.`,
  });
}

/** For after the stop: control leaves a session live whose pause was refused, and one may have been made meanwhile. */
export async function requireNoneLeft(dataDir: string, rest: string): Promise<void> {
  const live = await countMachines(dataDir);
  if (live === 0) return;
  throw new CliError(`the service has stopped, and ${sessionsAre(live)} still live in ${dataDir}`, {
    hint: `The log of control says why. The machines run on; the next start of the service takes them over. ${rest}`,
  });
}

export const sessionsAre = (count: number) => `${count} ${count === 1 ? "session is" : "sessions are"}`;
