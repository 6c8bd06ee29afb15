/** Finds the database of a data directory, and starts the built-in one where the service does not run. */
import { existsSync } from "node:fs";
import path from "node:path";
import { CliError } from "../cli-error.ts";
import type { CliConfig } from "../config.ts";
import type { Layout } from "../supervisor/layout.ts";
import { logFile, makeUserDirs } from "../supervisor/layout.ts";
import { launchPostgres } from "../supervisor/postgres.ts";
import { databaseUrl, preparePostgres } from "../supervisor/postgres-files.ts";
import { ensureServiceUser, SERVICE_USER } from "../supervisor/service-user.ts";

export interface DatabasePlace {
  /** A PostgreSQL of the operator's own; undefined: the built-in one. */
  url: string | undefined;
  controlUser: string;
}

export interface DataPlaces extends DatabasePlace {
  /** Directory of the object store; undefined: objects are in a bucket, which is saved beside. */
  objectsDir: string | undefined;
  /** Directory of the warm tier, which is that of the object store or, beside a bucket, that of before. */
  localDir: string;
}

/** As the settings in force say (install/config-in-force.ts). */
export function databasePlace({ dataDir, databaseUrl, childEnv }: CliConfig): DataPlaces {
  const { VIV_CONTROL_USER: user, VIV_OBJECTS_DIR: objectsDir, VIV_OBJECTS: bucket } = childEnv;
  return {
    url: databaseUrl,
    controlUser: user || SERVICE_USER,
    objectsDir: bucket ? undefined : objectsDir || path.join(dataDir, "objects"),
    localDir: (!bucket && objectsDir) || path.join(dataDir, "objects"),
  };
}

/** Whether the built-in database was ever made. */
export const hasCluster = (layout: Layout) => existsSync(path.join(layout.postgresDir, "data", "PG_VERSION"));

/** The address of the built-in database, of a service that runs. */
export async function addressOfRunning(layout: Layout, { controlUser }: DatabasePlace): Promise<string> {
  if (!hasCluster(layout))
    throw new CliError(`${layout.dataDir} has no built-in database`, {
      hint: "Set DATABASE_URL to the PostgreSQL that the service uses.",
    });
  return databaseUrl(layout, await ensureServiceUser(controlUser));
}

/** Starts the built-in database, making it where there is none. The caller must hold the data directory's lock. */
export async function startDatabase(
  layout: Layout,
  { controlUser }: DatabasePlace,
): Promise<{ url: string; stop: () => Promise<void> }> {
  const user = await ensureServiceUser(controlUser);
  await makeUserDirs(layout, user);
  const files = await preparePostgres(layout, user);
  const place = { layout, files, logFile: logFile(layout, "postgres") };
  const running = await launchPostgres(place, user, new AbortController().signal);
  return { url: databaseUrl(layout, user), stop: () => running.stop() };
}
