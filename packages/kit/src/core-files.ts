/** Keeps the memory of this process, which has credentials, out of core files. */
import { execFile } from "node:child_process";
import { promisify } from "node:util";

const runFile = promisify(execFile);

/** For good: nobody without root raises the limit again. Its children get the limit too. */
export async function forbidCoreFiles(): Promise<void> {
  await runFile("prlimit", ["--pid", String(process.pid), "--core=0:0"]);
}
