/** The system users under which the service's processes run. */
import { type Account, findAccount } from "@vivarium/kit/account";
import { runHostCommand } from "@vivarium/kit/host-command";
import { CliError } from "../cli-error.ts";

/** User of the control plane and the database. */
export const SERVICE_USER = "vivarium";
/** User of the gateway: the host's firewall lets only this user reach machines. */
export const GATEWAY_USER = "vivarium-gateway";

/** Finds a system user, or creates it without home and login. */
export async function ensureServiceUser(name = SERVICE_USER): Promise<Account> {
  const existing = await findAccount(name);
  if (existing) return existing;
  const args = ["--system", "--user-group", "--no-create-home", "--home-dir", "/nonexistent"];
  const made = await runHostCommand("useradd", [...args, "--shell", "/usr/sbin/nologin", name]);
  const user = await findAccount(name);
  if (user) return user;
  throw new CliError(`cannot create the system user ${name}: ${made.stderr.trim() || "useradd failed"}`, {
    hint: `Create it yourself: useradd --system --user-group --no-create-home ${name}`,
  });
}

/** argv that runs a command as this user, with the user's groups and without capabilities. */
export function asUser(user: Account, command: string[]): string[] {
  const ids = [`--reuid=${user.uid}`, `--regid=${user.gid}`, "--init-groups"];
  return ["setpriv", ...ids, "--inh-caps=-all", "--no-new-privs", "--", ...command];
}

/** Fails now, not in a log later, if the user cannot enter a directory, as below a private home. */
export async function checkReach(user: Account, dir: string): Promise<void> {
  const [program = "", ...args] = asUser(user, ["test", "-x", dir]);
  if ((await runHostCommand(program, args)).code === 0) return;
  throw new CliError(`the system user ${user.name} cannot enter ${dir}`, {
    hint: `Choose another --data-dir, or let others pass through the directories above it: chmod o+x …`,
  });
}
