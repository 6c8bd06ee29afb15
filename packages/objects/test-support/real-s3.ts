/** An S3 server that others have written, as a process of a test (scripts/fetch-s3-server), on a socket in its directory. */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { connect } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { sleep } from "@vivarium/kit/clock";

/** The one credential that it knows. */
export const CREDENTIAL = { accessKeyId: "robot", secretAccessKey: "open/sesame+forty" };
export const REGION = "test-region-1";

export interface RealS3 extends AsyncDisposable {
  socket: string;
}

function programPath(): string {
  const { VIV_CACHE_DIR, XDG_CACHE_HOME } = process.env;
  const cache = VIV_CACHE_DIR ?? join(XDG_CACHE_HOME ?? join(homedir(), ".cache"), "vivarium");
  const program = join(cache, "test-tools/s3-server/s3-server");
  if (!existsSync(program)) throw new Error(`${program} is missing; run scripts/fetch-s3-server`);
  return program;
}

export async function startS3(directory: string): Promise<RealS3> {
  const socket = join(directory, "s3.sock");
  // It ends with its standard input, hence with this process.
  const child = spawn(programPath(), [directory, socket], {
    stdio: ["pipe", "ignore", "pipe"],
    env: { S3_SERVER_ACCESS: CREDENTIAL.accessKeyId, S3_SERVER_SECRET: CREDENTIAL.secretAccessKey },
  });
  let log = "";
  child.stderr?.on("data", (chunk) => {
    log += chunk;
  });
  const stop = async () => await end(child);
  try {
    await answering(child, socket, () => log);
  } catch (error) {
    await stop();
    throw error;
  }
  return { socket, [Symbol.asyncDispose]: stop };
}

async function answering(child: ChildProcess, path: string, log: () => string): Promise<void> {
  for (;;) {
    if (child.exitCode !== null) throw new Error(`the S3 server ended: ${log()}`);
    const socket = connect(path);
    const answers = await Promise.race([
      once(socket, "connect").then(() => true),
      new Promise<false>((resolve) => socket.once("error", () => resolve(false))),
    ]);
    socket.destroy();
    if (answers) return;
    await sleep(50);
  }
}

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, "exit");
  child.kill("SIGKILL");
  await ended;
}
