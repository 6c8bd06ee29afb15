import type { CliConfig } from "../config.ts";
import type { Layout } from "./layout.ts";

/** Environment of gateway, node and control. Variables that an operator has set are left alone. */
export function childEnvOf(
  { childEnv, databaseUrl }: Pick<CliConfig, "childEnv"> & Partial<Pick<CliConfig, "databaseUrl">>,
  facts: { layout: Layout; listen: string; controlUser: string; gatewayUser: string },
): Record<string, string> {
  const { layout } = facts;
  return {
    VIV_GATEWAY_USER: facts.gatewayUser,
    VIV_CONTROL_USER: facts.controlUser,
    // The built-in database is used by this service alone: its data directory is claimed.
    VIV_SOLE_CONTROL: databaseUrl === undefined ? "1" : "0",
    ...childEnv,
    // Unlike a user, a socket is never empty.
    VIV_NODE_SOCKET: childEnv.VIV_NODE_SOCKET || layout.nodeSocket,
    VIV_GATEWAY_SOCKET: childEnv.VIV_GATEWAY_SOCKET || layout.gatewaySocket,
    // Options may change these, and in the environment they may be relative.
    VIV_DATA_DIR: layout.dataDir,
    VIV_IMAGES_DIR: layout.imagesDir,
    VIV_LISTEN: facts.listen,
    VIV_SUPERVISED: "1",
    NODE_NO_WARNINGS: "1",
  };
}
