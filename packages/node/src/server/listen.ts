/** Opens the node's two unix sockets with the rights of the users that may connect. */
import { chmod, chown, mkdir, rm } from "node:fs/promises";
import path from "node:path";
import type { NodeConfig } from "../config.ts";
import { run } from "../host/run.ts";

interface Server {
  listen(at: { path: string }): Promise<string>;
}

export async function listenForControl(server: Server, config: NodeConfig): Promise<void> {
  await listenAt(server, config.socketPath, 0o660);
  const gid = await findId("-g", config.controlUser);
  if (gid !== undefined) await chown(config.socketPath, 0, gid);
}

/** Listens for the gateway's user and root alone, because the callers decide which addresses machines may reach. */
export async function listenForGateway(
  server: Server,
  socketPath: string,
  gatewayUid: number | undefined,
): Promise<void> {
  await listenAt(server, socketPath, 0o600);
  if (gatewayUid !== undefined) await chown(socketPath, gatewayUid, 0);
}

async function listenAt(server: Server, socketPath: string, mode: number): Promise<void> {
  await mkdir(path.dirname(socketPath), { recursive: true, mode: 0o755 });
  await rm(socketPath, { force: true });
  await server.listen({ path: socketPath });
  await chmod(socketPath, mode);
}

export const findUid = (user: string) => findId("-u", user);

async function findId(which: "-u" | "-g", user: string): Promise<number | undefined> {
  if (user === "") return undefined;
  const id = await run("id", [which, user]).catch(() => null);
  return id === null ? undefined : Number(id);
}
