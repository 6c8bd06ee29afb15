import { compiledCodeDir } from "@vivarium/kit/compiled-code";
import type { CliConfig } from "../config.ts";
import type { Layout } from "./layout.ts";

/** Environment of gateway, node and control: the operator's variables, else defaults, and the paths of this start. */
export function childEnvOf(
  { childEnv, databaseUrl }: Pick<CliConfig, "childEnv"> & Partial<Pick<CliConfig, "databaseUrl">>,
  facts: { layout: Layout; listen: string; controlUser: string; gatewayUser: string },
): Record<string, string> {
  const { layout } = facts;
  const compiled = compiledCodeDir();
  return {
    VIV_GATEWAY_USER: facts.gatewayUser,
    VIV_CONTROL_USER: facts.controlUser,
    // "1": the built-in database has no other control, since its data directory is locked.
    VIV_SOLE_CONTROL: databaseUrl === undefined ? "1" : "0",
    ...childEnv,
    // An empty socket path counts as unset, but an empty user name is kept: it means the user who starts the service.
    VIV_NODE_SOCKET: childEnv.VIV_NODE_SOCKET || layout.nodeSocket,
    VIV_GATEWAY_SOCKET: childEnv.VIV_GATEWAY_SOCKET || layout.gatewaySocket,
    // Options of `viv up` override the environment, whose paths may be relative.
    VIV_DATA_DIR: layout.dataDir,
    VIV_IMAGES_DIR: layout.imagesDir,
    VIV_LISTEN: facts.listen,
    VIV_SUPERVISED: "1",
    NODE_NO_WARNINGS: "1",
    ...(compiled !== undefined && { NODE_COMPILE_CACHE: compiled }),
  };
}

/** The environment without the key-encryption keys and the credential of the bucket, which control alone may know. */
export function withoutSecrets(env: Record<string, string>): Record<string, string> {
  return Object.fromEntries(
    Object.entries(env).filter(([name]) => !/^(VIV_KEK|VIV_OBJECTS|AWS)(_|$)/.test(name)),
  );
}
