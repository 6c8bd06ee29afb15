/** The settings of an image for its programs: its variables become those of all programs, the rest is reported in the log. */
import type { ImageConfig } from "@vivarium/oci/image-config";

/** The agent sets them itself, for the user that programs run as. */
const OWN = new Set(["HOME", "USER", "SHELL"]);

/** The variables as lines of /etc/environment, in the form that the agent reads (`guest/agent/src/launch.rs`). */
export function environmentOf(env: readonly string[]): string {
  return takenOf(env)
    .map(({ name, value }) => `${name}="${value}"\n`)
    .join("");
}

function takenOf(env: readonly string[]): { name: string; value: string }[] {
  return env.map(splitVariable).filter(({ name, value }) => {
    return /^[A-Za-z0-9_]+$/.test(name) && !OWN.has(name) && !/[\r\n]/.test(value);
  });
}

function splitVariable(variable: string): { name: string; value: string } {
  const at = variable.indexOf("=");
  return { name: variable.slice(0, at), value: variable.slice(at + 1) };
}

/** Settings that sessions do not have, as sentences for the log. Values of variables are not shown. */
export function notesOn({ env, entrypoint, cmd, workingDir, user }: ImageConfig): string[] {
  const taken = new Set(takenOf(env).map(({ name }) => name));
  const left = env.map((variable) => splitVariable(variable).name).filter((name) => !taken.has(name));
  const program = [...entrypoint, ...cmd];
  return [
    ...(left.length > 0 ? [`variables that sessions do not get from the image: ${left.join(", ")}`] : []),
    ...(program.length > 0 ? [`its program is not started by itself: ${JSON.stringify(program)}`] : []),
    ...(workingDir !== "" ? [`programs begin in /workspace, not in its directory ${workingDir}`] : []),
    ...(user !== "" ? [`programs run as sandbox, not as its user ${user}`] : []),
  ];
}
