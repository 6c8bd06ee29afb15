import type { CliConfig } from "../config.ts";
import type { Layout } from "./layout.ts";

/** What gateway, node and control are started with. What an operator has set of it is left alone. */
export function childEnvOf(
  { childEnv, databaseUrl }: Pick<CliConfig, "childEnv"> & Partial<Pick<CliConfig, "databaseUrl">>,
  facts: { layout: Layout; listen: string; controlUser: string; gatewayUser: string },
): Record<string, string> {
  const { layout } = facts;
  return {
    VIV_GATEWAY_USER: facts.gatewayUser,
    VIV_CONTROL_USER: facts.controlUser,
    // The built-in database is this service's alone, whose data directory is claimed.
    VIV_SOLE_CONTROL: databaseUrl === undefined ? "1" : "0",
    ...childEnv,
    // Unlike a user, a socket is never nothing.
    VIV_NODE_SOCKET: childEnv.VIV_NODE_SOCKET || layout.nodeSocket,
    VIV_GATEWAY_SOCKET: childEnv.VIV_GATEWAY_SOCKET || layout.gatewaySocket,
    // Options have a say in these, and they may be relative in the environment.
    VIV_DATA_DIR: layout.dataDir,
    VIV_IMAGES_DIR: layout.imagesDir,
    VIV_LISTEN: facts.listen,
    VIV_SUPERVISED: "1",
    NODE_NO_WARNINGS: "1",
  };
}
