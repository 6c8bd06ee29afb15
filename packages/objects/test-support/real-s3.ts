/** An S3 server that others have written, as a process of a test (scripts/fetch-s3-server), on a socket in its directory. */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { endServer, fetchedProgram, untilAnswering } from "@vivarium/kit/test-support/server-process";

/** The one credential that it knows. */
export const CREDENTIAL = { accessKeyId: "robot", secretAccessKey: "open/sesame+forty" };
export const REGION = "test-region-1";

export interface RealS3 extends AsyncDisposable {
  socket: string;
}

const programPath = () => fetchedProgram("s3-server", "scripts/fetch-s3-server");

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
  const stop = async () => await endServer(child);
  try {
    await untilAnswering(child, { path: socket }, () => log);
  } catch (error) {
    await stop();
    throw error;
  }
  return { socket, [Symbol.asyncDispose]: stop };
}
