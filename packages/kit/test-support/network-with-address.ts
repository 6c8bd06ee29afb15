/** Runs code in a network with an address that the test chooses: those of this host come and go. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";

const SET_UP = 'ip link set lo up; ip address add "$1" dev lo; shift; exec "$@"';

/** `code` is a module; resolves with the JSON that it writes to standard output. */
export async function inNetworkWith(address: string, code: string): Promise<unknown> {
  const node = [process.execPath, "--no-warnings", "--input-type=module", "--eval", code];
  const argv = ["--net", "sh", "-ec", SET_UP, "sh", address, ...node];
  return JSON.parse((await promisify(execFile)("unshare", argv)).stdout);
}
