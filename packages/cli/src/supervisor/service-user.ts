import { type Account, findAccount } from "@vivarium/kit/account";
import { runHostCommand } from "@vivarium/kit/host-command";
import { CliError } from "../cli-error.ts";

/** The unprivileged system user of the control plane and the database. */
export const SERVICE_USER = "vivarium";
/** The gateway's own user: the host's firewall lets only this user reach machines. */
export const GATEWAY_USER = "vivarium-gateway";

/** The user, made when missing: no home, no login. */
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

/** argv that runs a command as this user, without any other group or privilege. */
export function asUser(user: Account, command: string[]): string[] {
  const ids = [`--reuid=${user.uid}`, `--regid=${user.gid}`, "--init-groups"];
  return ["setpriv", ...ids, "--inh-caps=-all", "--no-new-privs", "--", ...command];
}

/** A data directory below a private home is out of the user's reach. Fails now, instead of in a log later. */
export async function checkReach(user: Account, dir: string): Promise<void> {
  const [program = "", ...args] = asUser(user, ["test", "-x", dir]);
  if ((await runHostCommand(program, args)).code === 0) return;
  throw new CliError(`the system user ${user.name} cannot enter ${dir}`, {
    hint: `Choose another --data-dir, or let others pass through the directories above it: chmod o+x …`,
  });
}
