/** Seals the variables and secrets of sessions and checkpoints, and opens them for their programs and records. */
import type { Log } from "@vivarium/kit/log";
import type { Queries } from "../db/pool.ts";
import { ApiError } from "../errors/api-error.ts";
import { newDataKey, type Owner, openDataKey, openValues, sealValues, type WrappedKey } from "./data-key.ts";
import type { Keyring } from "./keyring.ts";
import { sealStateKey } from "./state-key.ts";
import { insertSealedValues, listSealedValues, listShownValues, type SealedValue } from "./store.ts";

type Values = Record<string, string>;

/** Variables and secrets of a session. Both reach its programs; records show the variables, and the names of secrets. */
export interface Variables {
  env: Values;
  secrets: Values;
}

export interface SecretDeps {
  db: Queries;
  keyring: Keyring;
}

type ShowDeps = SecretDeps & { log: Log };

/** The columns of a session or checkpoint that say how its variables are kept. */
export interface Sealable extends Owner {
  /** Variables of a service without a key-encryption key. */
  env: Values | null;
  kek_id: string | null;
  data_key: Buffer | null;
}

const isEmpty = (values: Values) => Object.keys(values).length === 0;
const isSealed = (row: Sealable): row is Sealable & WrappedKey => row.data_key !== null;

interface SealedVariables {
  columns: Partial<WrappedKey> & { env: string | null; state_key?: Buffer };
  values: SealedValue[];
  /** The session's data key, if it has one. */
  key?: Buffer;
}

/**
 * Columns of a new session, and its sealed values. Without a key-encryption key, secrets and Connections are refused and `env`
 * is kept.
 */
export function sealVariables(
  keyring: Keyring,
  owner: Owner,
  { env, secrets }: Variables,
  { hasConnections = false, stateKey }: { hasConnections?: boolean; stateKey?: Buffer | undefined } = {},
): SealedVariables {
  const kek = keyring.current;
  if (!kek) {
    if (!isEmpty(secrets)) throw noKey("secrets");
    if (hasConnections) throw noKey("connections");
    return { columns: { env: isEmpty(env) ? null : JSON.stringify(env) }, values: [] };
  }
  if (isEmpty(env) && isEmpty(secrets) && !hasConnections && !stateKey)
    return { columns: { env: null }, values: [] };
  const { key, wrapped } = newDataKey(kek, owner);
  const value = (kind: "env" | "secrets", values: Values, names: string[]) =>
    isEmpty(values)
      ? []
      : [{ session_id: owner.id, kind, names, sealed: sealValues(key, owner, kind, values) }];
  return {
    key,
    columns: {
      ...wrapped,
      env: null,
      ...(stateKey && { state_key: sealStateKey(key, owner, stateKey) }),
    },
    values: [...value("env", env, []), ...value("secrets", secrets, Object.keys(secrets).sort())],
  };
}

/** The refusal of a value that cannot be sealed. `field` is that of the request. */
export function noKey(field: string): ApiError {
  const message = `${field}: this server has no encryption key configured, so it keeps none`;
  return new ApiError("unavailable", message, { retryAfterS: null });
}

export async function saveSealedValues(tx: Queries, values: readonly SealedValue[]): Promise<void> {
  await insertSealedValues(tx, values);
}

/** The variables and secrets of a session. Its programs get both. */
export async function openVariables({ db, keyring }: SecretDeps, session: Sealable): Promise<Variables> {
  const open: Variables = { env: session.env ?? {}, secrets: {} };
  if (!isSealed(session)) return open;
  const values = await listSealedValues(db, [session.id]);
  const key = await openDataKey(keyring, session);
  for (const { kind, sealed } of values) open[kind] = openValues(key, session, kind, sealed);
  return open;
}

/** The part of a session's variables that its record shows. */
export interface ShownVariables {
  env?: Values;
  secret_names?: string[];
}

/**
 * Reads what the records of these sessions show of their variables. A session whose variables cannot be opened shows none,
 * so that it can still be listed and destroyed.
 */
export async function readShownVariables(
  deps: ShowDeps,
  sessions: readonly Sealable[],
): Promise<(session: Sealable) => ShownVariables> {
  const sealed = sessions.filter(isSealed);
  const values = await listShownValues(
    deps.db,
    sealed.map(({ id }) => id),
  );
  const valuesOf = Map.groupBy(values, ({ session_id: id }) => id);
  const shown = new Map<string, ShownVariables>();
  for (const session of sealed) {
    const own = valuesOf.get(session.id) ?? [];
    const env = own.find(({ kind }) => kind === "env");
    const secrets = own.find(({ kind }) => kind === "secrets");
    const opened = env?.sealed && (await openEnv(deps, session, env.sealed));
    shown.set(session.id, {
      ...(opened && { env: opened }),
      ...(secrets && { secret_names: secrets.names }),
    });
  }
  return ({ id, env }) => shown.get(id) ?? { ...(env && { env }) };
}

async function openEnv(
  { keyring, log }: ShowDeps,
  session: Sealable & WrappedKey,
  sealed: Buffer,
): Promise<Values | undefined> {
  try {
    return openValues(await openDataKey(keyring, session), session, "env", sealed);
  } catch (err) {
    log.error({ err, session_id: session.id }, "the variables of a session cannot be opened");
    return undefined;
  }
}

/** Columns of a checkpoint's variables, and of the state key of its session. A checkpoint has no secrets. */
export function sealForCheckpoint(
  keyring: Keyring,
  owner: Owner,
  { env, stateKey }: { env: Values; stateKey: Buffer | undefined },
): Partial<WrappedKey> & { env: string | null; sealed_env?: Buffer; state_key?: Buffer } {
  if (isEmpty(env) && !stateKey) return { env: null };
  if (!keyring.current) return { env: JSON.stringify(env) };
  const { key, wrapped } = newDataKey(keyring.current, owner);
  return {
    ...wrapped,
    env: null,
    ...(!isEmpty(env) && { sealed_env: sealValues(key, owner, "env", env) }),
    ...(stateKey && { state_key: sealStateKey(key, owner, stateKey) }),
  };
}

export async function openCheckpointEnv(
  keyring: Keyring,
  checkpoint: Sealable & { sealed_env: Buffer | null },
): Promise<Values> {
  if (!isSealed(checkpoint) || checkpoint.sealed_env === null) return checkpoint.env ?? {};
  return openValues(await openDataKey(keyring, checkpoint), checkpoint, "env", checkpoint.sealed_env);
}
