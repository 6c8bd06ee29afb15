/** Calls of systemctl for the verbs about units, and whether this host has systemd. */
import { spawn, spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { type CommandResult, runHostCommand } from "@vivarium/kit/host-command";
import { CliError } from "../cli-error.ts";
import type { Terminal } from "../terminal.ts";

export const UNITS_DIR = "/etc/systemd/system";

/** A stop waits until sessions are paused when the host goes down; a start for what set-up makes. */
const UNIT_LIMIT_MS = 3_600_000;

export function requireSystemd(verb: string): void {
  if (existsSync("/run/systemd/system") && readComm(1) === "systemd") return;
  const init = readComm(1);
  throw new CliError(
    `viv ${verb} needs systemd, and the first process of this host is ${init || "not readable"}`,
    { hint: "Run the service without it: viv up --background. Before the host goes down: viv down --pause." },
  );
}

export function requireRootFor(verb: string): void {
  if (process.getuid?.() === 0) return;
  throw new CliError(`viv ${verb} needs root`, { hint: `Run it as: sudo viv ${verb}` });
}

export async function systemctl(...args: string[]): Promise<CommandResult> {
  return await runHostCommand("systemctl", args, { timeoutMs: UNIT_LIMIT_MS });
}

/** As `systemctl`, but a failure is an error with systemd's words. */
export async function requireSystemctl(...args: string[]): Promise<void> {
  const { code, stderr } = await systemctl(...args);
  if (code === 0) return;
  throw new CliError(`systemctl ${args.join(" ")} failed: ${stderr.trim() || `exit code ${code}`}`);
}

export interface UnitState {
  /** `active`, `activating`, `failed`, `inactive` and others. */
  active: string;
  /** How its last run ended: `success`, `exit-code`, `timeout` and others. */
  result: string;
  mainPid: number;
  restarts: number;
  /** Whether systemd still has to start or stop it. */
  hasJob: boolean;
}

export async function unitState(name: string): Promise<UnitState> {
  const properties = ["ActiveState", "Result", "MainPID", "NRestarts", "Job"];
  const { stdout } = await systemctl("show", `--property=${properties.join(",")}`, `${name}.service`);
  const value = (property: string) => new RegExp(`^${property}=(.*)$`, "m").exec(stdout)?.[1] ?? "";
  return {
    active: value("ActiveState"),
    result: value("Result"),
    mainPid: Number(value("MainPID")),
    restarts: Number(value("NRestarts")),
    hasJob: Number(value("Job")) > 0,
  };
}

/** Whether systemd has a unit of this name, from a package, a generator or a call, and the file that it is from. */
export function unitKnown(name: string, show = showUnit): { isKnown: boolean; file: string } {
  const text = show(name);
  const value = (property: string) => new RegExp(`^${property}=(.*)$`, "m").exec(text)?.[1] ?? "";
  // A host without systemd says nothing.
  return { isKnown: !["", "not-found"].includes(value("LoadState")), file: value("FragmentPath") };
}

/** Waits in place, as do the other checks of a name. */
function showUnit(name: string): string {
  const args = ["show", "--property=LoadState,FragmentPath", `${name}.service`];
  return spawnSync("systemctl", args, { encoding: "utf8", timeout: 30_000 }).stdout ?? "";
}

/** The version of this host's systemd; 0 if it does not say. */
export async function systemdVersion(): Promise<number> {
  const { stdout } = await systemctl("--version");
  return Number(/^systemd (\d+)/.exec(stdout)?.[1] ?? 0);
}

/** Shows what the unit logs from now on; returns a function that ends that. */
export function showJournal(name: string, terminal: Terminal): () => void {
  const args = ["--unit", `${name}.service`, "--follow", "--lines=0", "--output=cat"];
  const child = spawn("journalctl", args, { stdio: ["ignore", "pipe", "ignore"] });
  child.on("error", () => {});
  // Lines of JSON are for programs: the supervisor's own lines say how far it is.
  createInterface({ input: child.stdout }).on("line", (line) => {
    if (!line.startsWith("{")) terminal.note(line);
  });
  return () => void child.kill();
}

function readComm(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/comm`, "utf8").trim();
  } catch {
    return "";
  }
}
