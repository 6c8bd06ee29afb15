import { CliError } from "../cli-error.ts";
import { runHostCommand } from "./host-command.ts";

/** An unprivileged system user. */
export interface ServiceUser {
  name: string;
  uid: number;
  gid: number;
}

/** Of the control plane and the database. */
export const SERVICE_USER = "vivarium";
/** Of the gateway alone: the host's firewall knows by it who may reach machines. */
export const GATEWAY_USER = "vivarium-gateway";

export async function findServiceUser(name = SERVICE_USER): Promise<ServiceUser | undefined> {
  const { code, stdout } = await runHostCommand("getent", ["passwd", name]);
  const fields = stdout.trim().split(":");
  if (code !== 0) return undefined;
  return { name, uid: Number(fields[2]), gid: Number(fields[3]) };
}

/** The user, made when missing: no home, no login. */
export async function ensureServiceUser(name = SERVICE_USER): Promise<ServiceUser> {
  const existing = await findServiceUser(name);
  if (existing) return existing;
  const args = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"];
  const made = await runHostCommand("useradd", [...args, "--shell", "/usr/sbin/nologin", name]);
  const user = await findServiceUser(name);
  if (user) return user;
  throw new CliError(`cannot create the system user ${name}: ${made.stderr.trim() || "useradd failed"}`, {
    hint: `Create it yourself: useradd --system --user-group --no-create-home ${name}`,
  });
}

/** argv that runs a command as this user, without any other group or privilege. */
export function asUser(user: ServiceUser, command: string[]): string[] {
  const ids = [`--reuid=${user.uid}`, `--regid=${user.gid}`, "--init-groups"];
  return ["setpriv", ...ids, "--inh-caps=-all", "--no-new-privs", "--", ...command];
}

/** A data directory below somebody's private home is out of the user's reach: found now, not in a log later. */
export async function checkReach(user: ServiceUser, dir: string): Promise<void> {
  const [program = "", ...args] = asUser(user, ["test", "-x", dir]);
  if ((await runHostCommand(program, args)).code === 0) return;
  throw new CliError(`the system user ${user.name} cannot enter ${dir}`, {
    hint: `Choose another --data-dir, or let others pass through the directories above it: chmod o+x …`,
  });
}
