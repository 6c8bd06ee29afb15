/** Checks of the programs that the service runs: QEMU, nft, conntrack and bubblewrap. */
import { runHostCommand } from "@vivarium/kit/host-command";
import { AS_ROOT, type Finding, fail, ok, warn } from "./finding.ts";

/** Oldest QEMU that works: 8.2 brought the read-only memory backend (`readonly=on,rom=off`) that clones share. */
const OLDEST_QEMU = [8, 2] as const;
export const QEMU = process.arch === "arm64" ? "qemu-system-aarch64" : "qemu-system-x86_64";

export async function checkQemu(): Promise<Finding> {
  const { code, stdout } = await runHostCommand(QEMU, ["--version"]);
  const match = /version (\d+)\.(\d+)(?:\.(\d+))?/.exec(stdout);
  if (code !== 0 || !match) {
    return fail("QEMU", `no ${QEMU}`, "no machine can start", "Run ./setup.");
  }
  const [major, minor] = [Number(match[1]), Number(match[2])];
  const version = match[0].replace("version ", "");
  if (major > OLDEST_QEMU[0] || (major === OLDEST_QEMU[0] && minor >= OLDEST_QEMU[1]))
    return ok("QEMU", version);
  const remedy = "Run ./setup; on Debian 12 it takes QEMU from backports.";
  return fail("QEMU", `${version}, older than 8.2`, "machines cannot share memory", remedy);
}

export async function checkNft(): Promise<Finding> {
  const listed = await runHostCommand("nft", ["list", "tables"]);
  if (listed.code === 0) return ok("nft", (await runHostCommand("nft", ["--version"])).stdout.trim());
  const cost = "no network rules, so sessions have no network";
  if (listed.code === 127) return warn("nft", "not installed", cost, "Run ./setup (package nftables).");
  const reason = listed.stderr.trim().split("\n")[0] ?? "";
  if (/not permitted/i.test(reason))
    return warn("nft", `not tried: ${reason}`, "unknown whether sessions have a network", AS_ROOT);
  return warn("nft", `does not work: ${reason}`, cost, "Needs the nf_tables kernel module.");
}

export async function checkConntrack(): Promise<Finding> {
  const { code, stdout } = await runHostCommand("conntrack", ["--version"]);
  if (code === 0) return ok("conntrack", stdout.trim());
  const cost =
    "egress logs lack what goes out directly, and flows of ended machines stay in the host's table";
  return warn("conntrack", "not installed", cost, "Run ./setup (package conntrack).");
}

/** Runs bubblewrap, since some hosts forbid the namespaces that it makes. */
export async function checkBubblewrap(): Promise<Finding> {
  const args = ["--unshare-pid", "--unshare-ipc", "--unshare-uts", "--ro-bind", "/", "/", "--", "true"];
  const tried = await runHostCommand("bwrap", args, { timeoutMs: 10_000 });
  if (tried.code === 0) {
    return ok("bubblewrap", (await runHostCommand("bwrap", ["--version"])).stdout.trim());
  }
  const cost = "no machine can start: its jail cannot be made";
  if (tried.code === 127) {
    return fail("bubblewrap", "not installed", cost, "Run ./setup (package bubblewrap).");
  }
  const reason = tried.stderr.trim().split("\n")[0] ?? "";
  return fail("bubblewrap", `does not work: ${reason}`, cost, "The host must allow namespaces to root.");
}
