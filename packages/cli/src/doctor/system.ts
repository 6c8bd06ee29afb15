/** Checks of the system: distribution, root, service users, swap and clock. */
import { readFileSync } from "node:fs";
import { findAccount } from "@vivarium/kit/account";
import { runHostCommand } from "@vivarium/kit/host-command";
import { GATEWAY_USER, SERVICE_USER } from "../supervisor/service-user.ts";
import { type Finding, fail, ok, warn } from "./finding.ts";

const SUPPORTED = ["debian 12", "debian 13", "ubuntu 24.04"];
/** An earlier year means that the clock was reset, as by a flat battery: TLS, key expiry and ids need the date. */
const EARLIEST_YEAR = 2025;

export function checkSystem(): Finding {
  const fields = readOsRelease();
  const name = fields.PRETTY_NAME ?? `${process.platform} ${process.arch}`;
  if (SUPPORTED.includes(`${fields.ID} ${fields.VERSION_ID}`))
    return ok("system", `${name}, ${process.arch}`);
  return warn("system", name, "not among the tested systems", "Tested: Debian 12 and 13, Ubuntu 24.04.");
}

export function checkRoot(): Finding {
  if (process.getuid?.() === 0) return ok("root", "running as root");
  return warn("root", `running as uid ${process.getuid?.()}`, "viv up cannot start", "Use sudo viv up.");
}

export async function checkServiceUser(): Promise<Finding> {
  const names = [SERVICE_USER, GATEWAY_USER];
  const users = await Promise.all(names.map((name) => findAccount(name)));
  const missing = names.filter((_, index) => users[index] === undefined);
  if (missing.length === 0) {
    return ok("service users", users.map((user) => `${user?.name}, uid ${user?.uid}`).join("; "));
  }
  return warn("service users", `no user ${missing.join(", ")}`, "none: the first viv up creates them");
}

export function checkSwap(): Finding {
  const lines = readFileSync("/proc/swaps", "utf8").trim().split("\n").slice(1);
  const totalKib = lines.reduce((sum, line) => sum + Number(line.split(/\s+/)[2]), 0);
  if (totalKib === 0) return ok("swap", "none");
  return warn(
    "swap",
    `${Math.round(totalKib / 1024)} MiB`,
    "memory of sessions, secrets included, may be written to disk on hosts without cgroup v2; wakes become uneven",
    "Turn it off (swapoff -a) or encrypt it.",
  );
}

export async function checkClock(now: Date): Promise<Finding> {
  const iso = now.toISOString();
  if (now.getUTCFullYear() < EARLIEST_YEAR) {
    return fail("clock", iso, "TLS, expiry and usage figures are wrong", "Set the clock: date -s …");
  }
  const { code, stdout } = await runHostCommand("timedatectl", ["show", "-p", "NTPSynchronized", "--value"]);
  const answer = code === 0 ? stdout.trim() : "";
  if (answer === "yes") return ok("clock", `${iso}, synchronised`);
  if (answer === "no") {
    const cost = "drifts: deadlines and usage figures slowly become wrong";
    return warn("clock", `${iso}, not synchronised`, cost, "Install chrony or systemd-timesyncd.");
  }
  return ok("clock", `${iso} (whether it is synchronised is not known here)`);
}

function readOsRelease(): Record<string, string> {
  try {
    const lines = readFileSync("/etc/os-release", "utf8").split("\n");
    return Object.fromEntries(lines.map((line) => line.replaceAll('"', "").split("=", 2)));
  } catch {
    return {};
  }
}
