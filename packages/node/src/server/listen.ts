/** The node's two unix sockets, and who may use them. */
import { chmod, chown, mkdir, rm } from "node:fs/promises";
import path from "node:path";
import type { NodeConfig } from "../config.ts";
import { run } from "../host/run.ts";

interface Server {
  listen(at: { path: string }): Promise<string>;
}

export async function listenForControl(server: Server, config: NodeConfig): Promise<void> {
  await mkdir(path.dirname(config.socketPath), { recursive: true, mode: 0o755 });
  await rm(config.socketPath, { force: true });
  await server.listen({ path: config.socketPath });
  await chmod(config.socketPath, 0o660);
  if (config.controlUser === "") return;
  const gid = await run("id", ["-g", config.controlUser]).catch(() => null);
  if (gid !== null) await chown(config.socketPath, 0, Number(gid));
}

export async function findUid(user: string): Promise<number | undefined> {
  if (user === "") return undefined;
  const uid = await run("id", ["-u", user]).catch(() => null);
  return uid === null ? undefined : Number(uid);
}

/** For the gateway's user and root alone, because its callers decide what machines may reach. */
export async function listenForGateway(
  server: Server,
  socketPath: string,
  gatewayUid: number | undefined,
): Promise<void> {
  await mkdir(path.dirname(socketPath), { recursive: true, mode: 0o755 });
  await rm(socketPath, { force: true });
  await server.listen({ path: socketPath });
  await chmod(socketPath, 0o600);
  if (gatewayUid !== undefined) await chown(socketPath, gatewayUid, 0);
}
