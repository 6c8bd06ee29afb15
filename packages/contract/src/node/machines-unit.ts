/**
 * Name of the systemd unit that holds the cgroups of machines. The node starts it as a transient unit where no unit
 * file of this name is installed. All services of one host share it.
 */
export const MACHINES_UNIT = "vivarium-machines.service";

/** Properties of the unit, whichever way it is made. Its process only keeps it active. */
export const MACHINES_UNIT_PROPERTIES: Record<string, string> = {
  Delegate: "cpu memory pids io",
  // A stop of the unit, as at shutdown, ends the machines. A machine that is out of memory ends alone.
  KillMode: "control-group",
  TimeoutStopSec: "10",
  OOMPolicy: "continue",
  OOMScoreAdjust: "-1000",
  TasksMax: "infinity",
};
